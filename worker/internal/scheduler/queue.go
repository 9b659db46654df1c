package scheduler

import (
	"sync/atomic"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/worker/internal/breaker"
	"github.com/yardmaster/yardmaster/worker/internal/wrr"
)

// QueueConfig is the configuration of a queue with all defaults applied.
type QueueConfig struct {
	broker.QueueConfig
	// Weight is the queue's share of the worker relative to the worker's other queues.
	Weight  int
	Breaker breaker.Settings
}

// ScheduledQueue is a queue from which a worker takes messages. The Scheduler's lock guards its unexported fields.
type ScheduledQueue struct {
	Config QueueConfig
	// Buffers hold the prefetched messages, one buffer for each priority of Config.
	Buffers []*PriorityBuffer

	priorityTurns *wrr.RoundRobin
	breaker       *breaker.Breaker
	limiter       broker.RateLimiter
	// prefetched is the number of messages in the buffers, requested that of messages that current requests may still return.
	prefetched, requested int
	// openSlots is the number of jobs that may start under the rate limit, pendingSlots that of reserved slots that are not due yet, and
	// slotPrefetch that of messages to prefetch for future slots.
	openSlots, pendingSlots, slotPrefetch int
	retired                               bool
	// failingSince is when the first request failed after the last success of one for any priority; zero if none has failed. failedFor is
	// the time until the last failure: while the worker has no capacity, it requests nothing, and so does not know more.
	failingSince time.Time
	failedFor    time.Duration
}

// NewScheduledQueue returns a queue with empty buffers. A nil limiter means no rate limit.
func NewScheduledQueue(config QueueConfig, limiter broker.RateLimiter) *ScheduledQueue {
	q := &ScheduledQueue{Config: config, breaker: breaker.New(config.Breaker), limiter: limiter, slotPrefetch: 1}
	weights, sum := make([]int, len(config.Priorities)), 0
	for i, p := range config.Priorities {
		weights[i] = p.Weight
		sum += p.Weight
	}
	for i := range weights {
		q.Buffers = append(q.Buffers, &PriorityBuffer{queue: q, index: i, weight: float64(config.Weight*weights[i]) / float64(sum), byKind: map[*kindLimit]int{}})
	}
	q.priorityTurns = wrr.New(weights)
	return q
}

// requestEnded records whether a request succeeded.
func (q *ScheduledQueue) requestEnded(now time.Time, err error) {
	switch {
	case err == nil:
		q.failingSince, q.failedFor = time.Time{}, 0
	case q.failingSince.IsZero():
		q.failingSince = now
	default:
		q.failedFor = now.Sub(q.failingSince)
	}
}

func (q *ScheduledQueue) isRateLimited() bool { return q.limiter != nil && q.limiter.IsLimited() }

// PriorityBuffer holds the prefetched messages of a priority of a queue. The Scheduler's lock guards its fields.
type PriorityBuffer struct {
	queue *ScheduledQueue
	// index of the priority. 0 is the most urgent priority.
	index int
	// weight relative to all buffers of the worker.
	weight   float64
	messages []*LeasedMessage
	// byKind is the number of messages of each kind with a limit.
	byKind map[*kindLimit]int
	// backlog is the number of messages that remain at the broker, as last reported.
	backlog uint64
	// requested is the number of messages that current requests may still return.
	requested int
	// isPolling is set while a request waits for a first message.
	isPolling bool
	// requestFailed is set if the last request failed. The backlog is then unknown.
	requestFailed bool
}

// isOutranked reports whether strict priority makes the buffer wait for a more urgent priority.
func (b *PriorityBuffer) isOutranked() bool {
	if !b.queue.Config.StrictPriority {
		return false
	}
	for _, other := range b.queue.Buffers[:b.index] {
		if other.startable() > 0 || other.hasBacklog() {
			return true
		}
	}
	return false
}

// outrankedMessages returns the number of prefetched messages that wait for this buffer because of strict priority. They must not use up
// its capacity, because they would wait for each other.
func (b *PriorityBuffer) outrankedMessages() int {
	if !b.queue.Config.StrictPriority {
		return 0
	}
	sum := 0
	for _, other := range b.queue.Buffers[b.index+1:] {
		sum += other.startable()
	}
	return sum
}

// hasBacklog reports whether messages are known to remain at the broker.
func (b *PriorityBuffer) hasBacklog() bool { return b.backlog > 0 && !b.requestFailed }

// LeasedMessage is a message for which the worker has a lease.
type LeasedMessage struct {
	broker.Delivery

	buffer     *PriorityBuffer
	receivedAt time.Time
	// extendedAt is when the lease was last extended; nil if it was not.
	extendedAt  atomic.Pointer[time.Time]
	isExtending bool
	// isOverdue is true if the lease is no longer extended.
	isOverdue bool
	ticket    breaker.Ticket
	// kind of the job, if it has a limit.
	kind         *kindLimit
	startedAt    time.Time
	releaseDelay time.Duration
}

// ReleaseDelay returns the time after which the broker should redeliver a message that is given back.
func (m *LeasedMessage) ReleaseDelay() time.Duration { return m.releaseDelay }

// QueueConfig returns the configuration of the message's queue.
func (m *LeasedMessage) QueueConfig() *QueueConfig { return &m.buffer.queue.Config }
