package scheduler

import (
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/test/require"
)

// fakeDelivery is a message with the given number of messages behind it at the broker.
type fakeDelivery struct {
	broker.Delivery
	backlog uint64
}

func (d fakeDelivery) PendingCount() uint64 { return d.backlog }

// unavailableLimiter is a rate limit that never assigns a slot.
type unavailableLimiter struct{ broker.RateLimiter }

func (unavailableLimiter) IsLimited() bool { return true }

var pollRequest = FetchRequest{Messages: 1, Poll: true}

func discardRelease(*LeasedMessage) {}

func queueConfig(name string) QueueConfig {
	return QueueConfig{QueueConfig: broker.DefaultQueueConfig(name), Weight: 1}
}

// The worker is full of prefetched low-priority messages when a high-priority backlog is
// discovered.
func TestOutrankedMessagesDoNotBlockAMoreUrgentPriority(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s := New(func() time.Time { return now }, discardRelease)
	config := queueConfig("orders")
	config.Priorities = []broker.Priority{{Name: "high", Weight: 1}, {Name: "low", Weight: 1}}
	config.StrictPriority = true
	q := NewScheduledQueue(config, nil)
	s.SetQueues([]*ScheduledQueue{q}, MessageLimits{Concurrency: 2, MaxInFlight: 2 + MaxPrefetch})
	high, low := q.Buffers[0], q.Buffers[1]
	for range 2 {
		s.AddMessage(low, pollRequest, fakeDelivery{})
	}
	s.AddMessage(high, pollRequest, fakeDelivery{backlog: 10})

	m := s.startNextMessage(s.now())
	require.True(t, m != nil && m.buffer == high, "started %+v, want the message with high priority", m)
	require.True(t, s.startNextMessage(s.now()) == nil, "started a message before the backlog of high priority")
	require.Equal(t, FetchRequest{Messages: 1}, s.allowedRequest(high))
	require.Equal(t, FetchRequest{}, s.allowedRequest(low))
	now = now.Add(maxIdlePrefetch + time.Second)
	s.UpdatePrefetch()
	require.True(t, len(low.messages) == 0 && s.releasing == 2, "%d messages of low priority are still prefetched, want 0", len(low.messages))
}

func TestPrioritiesShareTheWorkerByWeight(t *testing.T) {
	s := New(time.Now, discardRelease)
	config := queueConfig("orders")
	config.Priorities = []broker.Priority{{Name: "high", Weight: 3}, {Name: "low", Weight: 1}}
	q := NewScheduledQueue(config, nil)
	s.SetQueues([]*ScheduledQueue{q}, MessageLimits{Concurrency: 40, MaxInFlight: 80})
	for range 40 {
		s.AddMessage(q.Buffers[0], pollRequest, fakeDelivery{backlog: 100})
		s.AddMessage(q.Buffers[1], pollRequest, fakeDelivery{backlog: 100})
	}
	var started [2]int
	for range 40 {
		started[s.startNextMessage(s.now()).buffer.index]++
	}
	require.True(t, started == [2]int{30, 10}, "started %v, want three times as many of high priority", started)
}

func TestOnlyShortJobsArePrefetchedAndWithinMaxInFlight(t *testing.T) {
	for started, want := range map[int]int{0: 1, 2: 3, 1000: 4} { // since the last update
		s := New(time.Now, discardRelease)
		q := NewScheduledQueue(queueConfig("orders"), nil)
		s.SetQueues([]*ScheduledQueue{q}, MessageLimits{Concurrency: 2, MaxInFlight: 5})
		s.startedSinceUpdate = started
		s.UpdatePrefetch()
		s.AddMessage(q.Buffers[0], pollRequest, fakeDelivery{backlog: 1000})
		require.True(t, s.startNextMessage(s.now()) != nil, "no message started")
		require.Equal(t, want, s.allowedRequest(q.Buffers[0]).Messages)
	}
}

func TestRateLimitedQueueDoesNotBlockOtherQueues(t *testing.T) {
	s := New(time.Now, discardRelease)
	limited, other := NewScheduledQueue(queueConfig("limited"), unavailableLimiter{}), NewScheduledQueue(queueConfig("other"), nil)
	s.SetQueues([]*ScheduledQueue{limited, other}, MessageLimits{Concurrency: 1, MaxInFlight: 1 + MaxPrefetch})
	s.AddMessage(limited.Buffers[0], pollRequest, fakeDelivery{backlog: 10})
	require.Equal(t, 0, s.allowedRequest(limited.Buffers[0]).Messages)
	require.Equal(t, 1, s.allowedRequest(other.Buffers[0]).Messages)
	s.AddMessage(other.Buffers[0], pollRequest, fakeDelivery{})
	m := s.startNextMessage(s.now())
	require.True(t, m != nil && m.buffer.queue == other, "started %+v, want the message of the other queue", m)
}
