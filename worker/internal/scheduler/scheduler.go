// Package scheduler decides which messages a worker fetches, runs next and gives back.
//
// The goroutines that fetch messages, run jobs, reserve slots under the rate limit and extend leases share a Scheduler. They wait in the
// Scheduler: fetchers for capacity, executors for a message that may start.
//
//	NextRequest ─▶ AddMessage ─▶ buffer ─▶ NextMessage ─▶ the job runs ─▶ NextMessage(finished)
//	(prefetch.go)                  │
//	                               ├─ rate.go:    slots under the rate limit
//	                               ├─ kinds.go:   limits of kinds of jobs
//	                               ├─ leases.go:  leases to extend, messages to give back
//	                               └─ alone.go:   messages that may end the process run alone
//
// Besides the running jobs, a worker prefetches as many messages as jobs ended within the last update interval, or within this one if
// these are more. With short jobs the next message is always at hand; with long jobs no message waits here while another worker could run it.
package scheduler

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/yardmaster/yardmaster/worker/internal/breaker"
	"github.com/yardmaster/yardmaster/worker/internal/wrr"
)

// MessageLimits bound the messages of a worker.
type MessageLimits struct {
	// Concurrency is the number of jobs that run at a time.
	Concurrency int
	// MaxInFlight is the number of messages that run, are prefetched or are requested.
	MaxInFlight int
}

// Scheduler is safe for concurrent use.
type Scheduler struct {
	mu sync.Mutex
	// messageAvailable wakes executors, capacityFreed fetchers and WaitUntilDrained, and slotsNeeded the goroutines that reserve slots.
	messageAvailable, capacityFreed, slotsNeeded *sync.Cond
	// idleExecutors is the number of executors that wait for a message. isWaking is set while an executor wakes up.
	idleExecutors int
	isWaking      bool

	limits   MessageLimits
	draining atomic.Bool
	// held: no message is taken and no job starts until the handler is available again.
	held   bool
	closed bool
	// suspect is the message that runs alone, or waits for it; nil: none.
	suspect *LeasedMessage

	queues     []*ScheduledQueue
	queueTurns *wrr.RoundRobin
	// kinds that have a limit. The map does not change after the first message.
	kinds map[string]*kindLimit
	// leased contains every message under a lease: prefetched, running or being released.
	leased map[*LeasedMessage]struct{}
	// running, prefetched and releasing count messages; overdue is the part of running that exceeded their time. requested is the number
	// of messages that current requests may still return.
	running, overdue, prefetched, requested, releasing int
	activeRequests                                     int
	// endedSinceUpdate and endedBefore are the numbers of jobs that ended in this update interval and in the last one.
	endedSinceUpdate, endedBefore int

	now func() time.Time
	// release gives a message back to the broker. It is called without the lock.
	release func(*LeasedMessage)
}

// New returns a Scheduler without queues. It calls release for every message that has to be given back; call MarkReleased afterwards.
func New(now func() time.Time, release func(*LeasedMessage)) *Scheduler {
	s := &Scheduler{leased: map[*LeasedMessage]struct{}{}, now: now, release: release}
	s.messageAvailable, s.capacityFreed, s.slotsNeeded = sync.NewCond(&s.mu), sync.NewCond(&s.mu), sync.NewCond(&s.mu)
	return s
}

// SetQueues sets the queues from which messages are taken, and the limits. Call RetireQueues for queues that are no longer among them.
func (s *Scheduler) SetQueues(queues []*ScheduledQueue, limits MessageLimits) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queues, s.limits = queues, limits
	weights := make([]int, len(queues))
	for i, q := range queues {
		weights[i] = q.Config.Weight
	}
	s.queueTurns = wrr.New(weights)
	s.wakeAllWaiters()
}

func (s *Scheduler) wakeAllWaiters() {
	s.messageAvailable.Broadcast()
	s.capacityFreed.Broadcast()
	s.slotsNeeded.Broadcast()
}

// JobOutcome of a job, for the circuit breaker of its queue.
type JobOutcome int

// The outcomes of a job.
const (
	OutcomeSucceeded JobOutcome = iota
	OutcomeFailed
	// OutcomeUnknown says nothing about the services on which the queue's jobs depend.
	OutcomeUnknown
)

// NextMessage waits for a message that may start, and returns it; nil after Close. Finished is the message that the caller has run and
// settled since its last call, if any.
func (s *Scheduler) NextMessage(finished *LeasedMessage, outcome JobOutcome) *LeasedMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if finished != nil {
		s.finishMessage(finished, outcome, now)
	}
	for {
		if s.closed {
			return nil
		}
		if m := s.startNextMessage(now); m != nil {
			s.wakeExecutor()
			return m
		}
		s.idleExecutors++
		s.messageAvailable.Wait()
		s.idleExecutors--
		s.isWaking = false
		now = s.now()
	}
}

// wakeExecutor wakes an executor if there is a message to run, unless another executor is waking up, which then wakes the next. When many
// short jobs finish at once, few executors run all of them instead of competing for the lock.
func (s *Scheduler) wakeExecutor() {
	if s.prefetched > s.heldForKinds() && !s.isWaking && s.idleExecutors > 0 {
		s.isWaking = true
		s.messageAvailable.Signal()
	}
}

// startNextMessage removes the message that starts next from its buffer. It returns nil if no message may start.
func (s *Scheduler) startNextMessage(now time.Time) *LeasedMessage {
	if s.draining.Load() || s.held || s.suspect != nil || s.running >= s.limits.Concurrency || s.prefetched == 0 {
		return nil
	}
	queueIndex, b := s.selectBuffer(func(b *PriorityBuffer) bool {
		q := b.queue
		return b.startable() > 0 && !b.isOutranked() && (!q.isRateLimited() || q.openSlots > 0) && q.breaker.AdmissionLimit(now) > 0
	})
	if b == nil {
		return nil
	}
	s.queueTurns.Advance(queueIndex)
	b.queue.priorityTurns.Advance(b.index)
	m := b.messages[slices.IndexFunc(b.messages, (*LeasedMessage).mayStart)]
	s.removePrefetched(m)
	m.startedAt = now
	if m.kind != nil {
		m.kind.running++
		m.kind.lastStart = now
	}
	s.running++
	if b.queue.openSlots > 0 {
		b.queue.openSlots--
	}
	m.ticket = b.queue.breaker.AdmitJob(now)
	return m
}

// selectBuffer selects among the eligible buffers: first a queue by weight, then a priority of the queue, by weight or strictly.
func (s *Scheduler) selectBuffer(isEligible func(*PriorityBuffer) bool) (queueIndex int, selected *PriorityBuffer) {
	queueIndex = s.queueTurns.Next(func(i int) bool {
		return slices.ContainsFunc(s.queues[i].Buffers, isEligible)
	})
	if queueIndex < 0 {
		return queueIndex, nil
	}
	q := s.queues[queueIndex]
	if q.Config.StrictPriority {
		for _, b := range q.Buffers {
			if isEligible(b) {
				return queueIndex, b
			}
		}
	}
	return queueIndex, q.Buffers[q.priorityTurns.Next(func(i int) bool { return isEligible(q.Buffers[i]) })]
}

func (s *Scheduler) removePrefetched(m *LeasedMessage) {
	b := m.buffer
	if b.messages[0] == m {
		b.messages[0], b.messages = nil, b.messages[1:]
	} else {
		b.messages = slices.DeleteFunc(b.messages, func(other *LeasedMessage) bool { return other == m })
	}
	if m.kind != nil {
		b.byKind[m.kind]--
	}
	s.prefetched--
	b.queue.prefetched--
}

// finishMessage records the end of a job. It wakes no other executor, because the caller takes the next message itself, and wakes
// fetchers only once a request is worth its round trip.
func (s *Scheduler) finishMessage(m *LeasedMessage, outcome JobOutcome, now time.Time) {
	s.running--
	s.endedSinceUpdate++
	if m.isOverdue {
		s.overdue--
	}
	delete(s.leased, m)
	s.endSuspicion(m)
	if m.kind != nil {
		m.kind.running--
		if duration := now.Sub(m.startedAt); m.kind.meanDuration == 0 {
			m.kind.meanDuration = duration
		} else {
			m.kind.meanDuration += (duration - m.kind.meanDuration) / durationWeight
		}
		s.slotsNeeded.Broadcast() // a message that waited for its kind needs a slot
	}
	b := m.buffer.queue.breaker
	if outcome == OutcomeUnknown {
		b.DiscardResult(m.ticket, now)
	} else {
		b.RecordResult(m.ticket, outcome == OutcomeFailed, now)
	}
	if s.prefetched-s.heldForKinds() <= s.targetInFlight()/2 {
		s.capacityFreed.Broadcast()
	}
}

// targetInFlight is the number of running and prefetched messages that keeps all executors busy.
func (s *Scheduler) targetInFlight() int {
	return min(s.limits.Concurrency+max(s.endedSinceUpdate, s.endedBefore), s.limits.MaxInFlight)
}

// IsDraining reports whether the worker takes no messages.
func (s *Scheduler) IsDraining() bool { return s.draining.Load() }

// isDrained requires the lock. Overdue jobs do not delay a drain, because the broker delivers them again.
func (s *Scheduler) isDrained() bool {
	return s.draining.Load() && s.running-s.overdue+s.prefetched+s.releasing+s.activeRequests == 0
}

// WaitUntilDrained waits until the worker is draining and has no messages left, or ctx ends. It reports whether the worker is drained.
func (s *Scheduler) WaitUntilDrained(ctx context.Context) bool {
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.wakeAllWaiters()
	})
	defer stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.isDrained() && ctx.Err() == nil {
		s.capacityFreed.Wait()
	}
	return s.isDrained()
}

// Snapshot is the state of a Scheduler at one moment.
type Snapshot struct {
	// Draining: the worker takes no messages. Drained: it also has no messages left. Held: it takes none until Hold ends it.
	Draining, Drained, Held bool
	// Running, Overdue and Prefetched count messages. Overdue messages do not count as running; messages that are being given back count
	// as prefetched.
	Running, Overdue, Prefetched int
	Queues                       []QueueSnapshot
}

// QueueSnapshot is the state of one queue of a Scheduler.
type QueueSnapshot struct {
	Name        string
	Breaker     breaker.State
	Prefetched  int
	RateLimited bool
	// Unreachable: all requests for its messages have failed for at least unreachableTime.
	Unreachable bool
}

// unreachableTime is longer than a restart of a broker.
const unreachableTime = time.Minute

// Snapshot returns the current state.
func (s *Scheduler) Snapshot() Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	snapshot := Snapshot{
		Draining: s.draining.Load(), Drained: s.isDrained(), Held: s.held,
		Running: s.running - s.overdue, Overdue: s.overdue, Prefetched: s.prefetched + s.releasing,
	}
	for _, q := range s.queues {
		snapshot.Queues = append(snapshot.Queues, QueueSnapshot{q.Config.Name, q.breaker.State(now), q.prefetched, q.isRateLimited(), q.failedFor >= unreachableTime})
	}
	return snapshot
}
