package worker

import (
	"math"
	"sync"
	"time"

	"github.com/yardmaster/yardmaster/worker/internal/breaker"
)

// State of a worker.
type State string

// The states of a worker.
const (
	// StateRunning: the worker takes jobs.
	StateRunning State = "Running"
	// StateDraining: the worker takes no jobs, and some jobs have not finished.
	StateDraining State = "Draining"
	// StateDrained: the worker takes no jobs and has none.
	StateDrained State = "Drained"
)

// Stats describe a worker at one moment. The admin API serves them as JSON.
type Stats struct {
	State State `json:"state"`
	// Connected is true once the worker has connected to the broker.
	Connected bool `json:"connected"`
	// Attached is true while the worker takes messages from each of its queues: each was found on the broker and subscribed to, none is
	// unreachable, and the handler can run jobs.
	Attached bool `json:"attached"`
	// Unavailable is why the handler cannot run jobs, so that the worker takes none; empty if it can.
	Unavailable string `json:"unavailable,omitempty"`
	// InFlight is the number of running jobs that are not overdue, and Capacity its maximum.
	InFlight int `json:"inFlight"`
	Capacity int `json:"capacity"`
	// Prefetched is the number of messages that have not started. They are given back when the worker drains.
	Prefetched int `json:"prefetched"`
	// Succeeded and Failed are the numbers of attempts since the worker started, and Snoozed that of jobs that the handler gave back
	// without an attempt. Attempts that a shutdown interrupts, and canceled jobs, do not count.
	Succeeded int64 `json:"succeeded"`
	Failed    int64 `json:"failed"`
	Snoozed   int64 `json:"snoozed"`
	// Returned is the number of messages that the worker gave back and that are due within a minute.
	Returned int `json:"returned"`
	// Overdue is the number of jobs whose handlers still run after the timeout, although their context has ended.
	// Their messages are delivered again, so they delay no drain.
	Overdue int `json:"overdue"`
	// Recent attempts, from which the operator derives how long a job takes.
	Recent RecentAttempts `json:"recent"`
	// Progress of running jobs that reported it: at most the 10 jobs that have run for the longest. ProgressOmitted is the number of other
	// such jobs.
	Progress        []JobProgress `json:"progress,omitempty"`
	ProgressOmitted int           `json:"progressOmitted,omitempty"`
	// Breaker is the worst state among the circuit breakers of all queues.
	Breaker   breaker.State `json:"breaker"`
	Queues    []QueueStats  `json:"queues"`
	Pool      string        `json:"pool,omitempty"`
	Namespace string        `json:"namespace,omitempty"`
	Pod       string        `json:"pod,omitempty"`
	Revision  string        `json:"revision,omitempty"`
	// StartTime is when the worker was created.
	StartTime time.Time `json:"startTime"`
}

// QueueStats describe one queue of a worker.
type QueueStats struct {
	Name string `json:"name"`
	// Breaker is the state of the queue's circuit breaker.
	Breaker breaker.State `json:"breaker"`
	// Prefetched is the number of the queue's messages that have not started.
	Prefetched int `json:"prefetched"`
	// RateLimited is true if the queue has a rate limit.
	RateLimited bool `json:"rateLimited"`
	// Unreachable is true if each request for messages of the queue has failed for a minute.
	Unreachable bool `json:"unreachable,omitempty"`
}

// Stats returns the worker's current stats.
func (w *Worker) Stats() Stats {
	o, snapshot := &w.options, w.scheduler.Snapshot()
	stats := Stats{
		State: StateRunning, InFlight: snapshot.Running, Prefetched: snapshot.Prefetched,
		Succeeded: w.succeeded.Load(), Failed: w.failed.Load(), Snoozed: w.snoozed.Load(), Returned: w.returned.count(w.now()),
		Unavailable: w.availability.unavailable(), Overdue: snapshot.Overdue, Recent: w.attempts.recent(w.now()),
		Breaker: breaker.Closed, Queues: []QueueStats{},
		Pool: o.Pool, Namespace: o.Namespace, Pod: o.Pod, Revision: o.Revision, StartTime: w.startedAt,
	}
	switch {
	case snapshot.Drained:
		stats.State = StateDrained
	case snapshot.Draining:
		stats.State = StateDraining
	}
	stats.Progress, stats.ProgressOmitted = w.progress.longest()
	isReachable := true
	for _, q := range snapshot.Queues {
		stats.Queues = append(stats.Queues, QueueStats(q))
		isReachable = isReachable && !q.Unreachable
		if q.Breaker == breaker.Open || q.Breaker == breaker.HalfOpen && stats.Breaker == breaker.Closed {
			stats.Breaker = q.Breaker
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	stats.Connected, stats.Capacity = w.engine != nil, w.settings.concurrency
	stats.Attached = w.engine != nil && len(w.settings.queues) > 0 && isReachable && stats.Unavailable == ""
	for i := range w.settings.queues {
		q := w.queues[w.settings.queues[i].Name]
		stats.Attached = stats.Attached && q != nil && q.scheduled != nil
	}
	return stats
}

// Drain stops the worker from taking jobs and gives back jobs that have not started. Running jobs continue. Drain returns immediately;
// Stats shows when the worker is drained.
func (w *Worker) Drain() {
	w.log.Info("Draining")
	w.scheduler.Drain()
}

// Resume makes a drained worker take jobs again. It returns false if the worker is shutting down and stays drained.
func (w *Worker) Resume() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.shutdown.Err() != nil {
		return false
	}
	w.log.Info("Resuming")
	w.scheduler.Resume()
	return true
}

const recentTime = 2 * time.Minute

// RecentAttempts are the attempts that ended in the last minutes. The weight of an attempt decays to 1/e two minutes after its end.
type RecentAttempts struct {
	// Count of the attempts.
	Count float64 `json:"count"`
	// Seconds is the total time of their handlers.
	Seconds float64 `json:"seconds"`
	// Returned is the number of attempts after which the message returned to its queue, to be retried or because it was snoozed.
	Returned float64 `json:"returned"`
}

func (r RecentAttempts) decayedBy(elapsed time.Duration) RecentAttempts {
	kept := math.Exp(-max(elapsed, 0).Seconds() / recentTime.Seconds())
	return RecentAttempts{Count: r.Count * kept, Seconds: r.Seconds * kept, Returned: r.Returned * kept}
}

// attemptRecorder records recent attempts. It is safe for concurrent use.
type attemptRecorder struct {
	mu       sync.Mutex
	attempts RecentAttempts
	lastTime time.Time
}

func (a *attemptRecorder) record(now time.Time, took time.Duration, returns bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.attempts, a.lastTime = a.attempts.decayedBy(now.Sub(a.lastTime)), now
	a.attempts.Count++
	a.attempts.Seconds += max(took, 0).Seconds()
	if returns {
		a.attempts.Returned++
	}
}

func (a *attemptRecorder) recent(now time.Time) RecentAttempts {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.attempts.decayedBy(now.Sub(a.lastTime))
}
