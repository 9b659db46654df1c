package worker

import (
	"time"

	"github.com/yardmaster/yardmaster/worker/internal/breaker"
)

// tickEvery is the time between ticks.
const tickEvery = 100 * time.Millisecond

// tick looks after what only time changes. It returns what goes back.
func (y *yard) tick() {
	y.mu.Lock()
	y.ahead, y.begun = min(y.begun, y.most-y.concurrency), 0
	back := y.overdue()
	y.wake()
	y.mu.Unlock()
	for _, h := range back {
		y.giveBack(h)
	}
}

// overdue takes out those that are held to no use: their queue's breaker is open, or they
// have waited for long and nothing is free.
func (y *yard) overdue() []*held {
	var back []*held
	now := y.now()
	for _, q := range y.queues {
		open := q.breaker.State(now) == breaker.Open
		for _, l := range q.lanes {
			for _, h := range append([]*held(nil), l.held...) {
				if open || (y.busy >= y.concurrency || l.blocked()) && now.Sub(h.since) > longestHeld {
					back = append(back, h)
				}
			}
		}
	}
	y.goBack(back)
	return back
}

// goBack takes messages out of those that are held.
func (y *yard) goBack(back []*held) {
	for _, h := range back {
		y.drop(h)
		h.lane.queue.granted = min(h.lane.queue.granted, h.lane.queue.waiting)
	}
	y.returning += len(back)
}

// drain stops taking messages, and hands back those that are held.
func (y *yard) drain() {
	y.mu.Lock()
	y.draining.Store(true)
	back := heldBy(y.queues)
	y.goBack(back)
	y.wake()
	y.mu.Unlock()
	for _, h := range back {
		y.giveBack(h)
	}
}

func heldBy(queues []*queue) []*held {
	var all []*held
	for _, q := range queues {
		for _, l := range q.lanes {
			all = append(all, l.held...)
		}
	}
	return all
}

// resume takes messages again.
func (y *yard) resume() {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.draining.Store(false)
	y.wake()
}

// retire stops work on queues. What is held of them goes back, jobs that run are let finish.
func (y *yard) retire(queues []*queue) {
	y.mu.Lock()
	for _, q := range queues {
		q.gone = true
	}
	back := heldBy(queues)
	y.goBack(back)
	y.wake()
	y.mu.Unlock()
	for _, h := range back {
		y.giveBack(h)
	}
}

// close ends everything: nobody waits for anything any more.
func (y *yard) close() {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.ended = true
	y.wake()
}
