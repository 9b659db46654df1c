package worker

import (
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// message is a delivery that is only counted.
type message struct {
	broker.Delivery
	behind uint64
}

func (m message) PendingCount() uint64 { return m.behind }

// Messages that are held of the less urgent priority fill the worker; then it turns out
// that there are more of the urgent one.
func TestAnUrgentPriorityIsNotKeptOutByWhatWaitsForIt(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	y := newYard(func() time.Time { return now }, func(*held) {})
	s := queueSettings{QueueConfig: broker.DefaultQueueConfig("orders"), weight: 1}
	s.Priorities = []broker.Priority{{Name: "high", Weight: 1}, {Name: "low", Weight: 1}}
	s.StrictPriority = true
	q := newQueue(s, nil)
	y.set([]*queue{q}, 2, 2+mostAhead)
	high, low := q.lanes[0], q.lanes[1]
	for range 2 {
		y.arrive(low, message{}, true)
	}
	y.arrive(high, message{behind: 10}, true)

	if h := y.begin(y.now()); h == nil || h.lane != high {
		t.Fatalf("%+v is begun", h)
	}
	if h := y.begin(y.now()); h != nil {
		t.Errorf("%+v is begun before what is more urgent", h.lane.index)
	}
	if r := y.credit(high); r.number != 1 || r.await {
		t.Errorf("of the urgent priority %+v may be asked for", r)
	}
	if r := y.credit(low); r.number != 0 {
		t.Errorf("of the other %+v may be", r)
	}
	now = now.Add(longestHeld + time.Second)
	y.tick()
	if len(low.held) != 0 || y.returning != 2 {
		t.Errorf("%d are still held", len(low.held))
	}
}

func TestNoMoreIsAskedForThanMayBeWithAWorker(t *testing.T) {
	y := newYard(time.Now, func(*held) {})
	q := newQueue(queueSettings{QueueConfig: broker.DefaultQueueConfig("orders"), weight: 1}, nil)
	y.set([]*queue{q}, 2, 5)
	y.begun = 1000 // so short are the jobs
	y.tick()
	y.arrive(q.lanes[0], message{behind: 1000}, true)
	if y.begin(y.now()) == nil {
		t.Fatal("nothing is begun")
	}
	if r := y.credit(q.lanes[0]); r.number != 4 {
		t.Errorf("beside one that runs %d may be asked for, want 4", r.number)
	}
}

// endless is a rate limit whose next slot never comes.
type endless struct{ broker.RateLimiter }

func (endless) IsLimited() bool { return true }

func TestAQueueThatWaitsForItsRateLimitKeepsNoOtherWaiting(t *testing.T) {
	y := newYard(time.Now, func(*held) {})
	limited := newQueue(queueSettings{QueueConfig: broker.DefaultQueueConfig("limited"), weight: 1}, endless{})
	other := newQueue(queueSettings{QueueConfig: broker.DefaultQueueConfig("other"), weight: 1}, nil)
	y.set([]*queue{limited, other}, 1, 1+mostAhead)
	y.arrive(limited.lanes[0], message{behind: 10}, true)
	if r := y.credit(limited.lanes[0]); r.number != 0 {
		t.Errorf("of the limited queue %+v may be asked for", r)
	}
	if r := y.credit(other.lanes[0]); r.number != 1 {
		t.Errorf("of the other %+v may be", r)
	}
	y.arrive(other.lanes[0], message{}, true)
	if h := y.begin(y.now()); h == nil || h.lane.queue != other {
		t.Errorf("%+v is begun", h)
	}
}
