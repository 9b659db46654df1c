package worker

import (
	"time"

	"github.com/yardmaster/yardmaster/worker/internal/breaker"
)

// Stats are what a worker is doing.
type Stats struct {
	State State `json:"state"`
	// Connected: the broker has been reached since the worker started.
	Connected bool `json:"connected"`
	// InFlight jobs run, of Capacity.
	InFlight int `json:"inFlight"`
	Capacity int `json:"capacity"`
	// Held messages are not yet begun, and go back if the worker is drained.
	Held int `json:"held"`
	// Succeeded and Failed count what handlers made of jobs since the worker started, each
	// attempt for itself. A job that was put back, or not let finish, is neither.
	Succeeded int64 `json:"succeeded"`
	Failed    int64 `json:"failed"`
	// Breaker is the worst of all queues'.
	Breaker   breaker.State `json:"breaker"`
	Queues    []QueueStats  `json:"queues"`
	Pool      string        `json:"pool,omitempty"`
	Namespace string        `json:"namespace,omitempty"`
	Pod       string        `json:"pod,omitempty"`
	Revision  string        `json:"revision,omitempty"`
	Started   time.Time     `json:"started"`
}

// QueueStats are those of one queue.
type QueueStats struct {
	Name    string        `json:"name"`
	Breaker breaker.State `json:"breaker"`
	Held    int           `json:"held"`
	Limited bool          `json:"limited"`
}

// Stats tells what the worker is doing.
func (w *Worker) Stats() Stats {
	o := &w.options
	s := Stats{
		Breaker: breaker.Closed, Queues: []QueueStats{}, Pool: o.Pool, Namespace: o.Namespace, Pod: o.Pod, Revision: o.Revision,
		Started: w.started, Succeeded: w.succeeded.Load(), Failed: w.failed.Load(),
	}
	w.mu.Lock()
	s.Connected, s.Capacity = w.engine != nil, w.settings.concurrency
	w.mu.Unlock()

	y := w.yard
	y.mu.Lock()
	defer y.mu.Unlock()
	now := y.now()
	s.State, s.InFlight, s.Held = y.state(), y.busy, y.waiting+y.returning
	for _, q := range y.queues {
		state := q.breaker.State(now)
		s.Queues = append(s.Queues, QueueStats{q.settings.Name, state, q.waiting, q.limited()})
		if state == breaker.Open || state == breaker.HalfOpen && s.Breaker == breaker.Closed {
			s.Breaker = state
		}
	}
	return s
}

// Drain has the worker take nothing more, and hand back what it has not begun. Jobs
// that run are let finish. It returns at once.
func (w *Worker) Drain() {
	w.log.Info("Draining")
	w.yard.drain()
}

// Resume has the worker take jobs again. It tells whether it does: one that is about to
// end does not.
func (w *Worker) Resume() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.leaving {
		return false
	}
	w.log.Info("Resuming")
	w.yard.resume()
	return true
}
