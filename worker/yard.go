package worker

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/worker/internal/breaker"
	"github.com/yardmaster/yardmaster/worker/internal/wrr"
)

// State of a worker.
type State string

// The states.
const (
	// Running: it takes jobs.
	Running State = "Running"
	// Draining: it takes no more, and some still run.
	Draining State = "Draining"
	// Drained: none runs, and none is held.
	Drained State = "Drained"
)

const (
	// mostAhead bounds how many messages are held for what will be free soon, if the
	// configuration does not.
	mostAhead = 2048
	// held for longer than this, without a prospect of being begun, a message goes back to
	// where another worker finds it.
	longestHeld = 2 * time.Second
)

// yard is what all parts of a worker share: which messages it holds, which run, and for
// how many more there is room. Those that fetch wait for room, those that run jobs wait
// for work.
//
// As many messages are held, beside those that run, as were begun in the last tenth of a
// second: with short jobs the next one is there already, with long ones nothing is held
// that another worker could begin.
type yard struct {
	mu                  sync.Mutex
	work, room, metered *sync.Cond
	// idle are those who wait to run jobs; rousing: one of them is waking up.
	idle    int
	rousing bool

	// concurrency jobs run at a time, most messages are held or run.
	concurrency, most int
	draining          atomic.Bool
	// ended: nothing is fetched and nothing begun any more.
	ended bool

	queues []*queue
	shares *wrr.Shares
	// leased are all messages under a lease: held, running and going back.
	leased map[*held]struct{}
	// busy jobs run, waiting messages are held, asked for are those a request may still
	// bring, and going back those not yet handed back.
	busy, waiting, asked, returning int
	// fetching lanes have a request under way.
	fetching int
	// begun since the last tick, and what may be held for that.
	begun, ahead int

	now func() time.Time
	// giveBack hands a message back; it is called without the lock.
	giveBack func(*held)
}

// queue is one queue in a yard.
type queue struct {
	settings queueSettings
	lanes    []*lane
	shares   *wrr.Shares
	breaker  *breaker.Breaker
	limiter  broker.RateLimiter
	// waiting messages are held, asked for are those that requests may still bring.
	waiting, asked int
	// granted jobs may begin under the rate limit, promised ones soon. hand is how many
	// messages are held for grants to come.
	granted, promised, hand int
	// gone: it is worked on no more.
	gone bool
}

// lane is one priority of a queue in a yard.
type lane struct {
	queue *queue
	index int
	// weight among all lanes.
	weight float64
	held   []*held
	// behind is how many more wait at the broker, as far as is known.
	behind uint64
	asked  int
	// awaiting: a request for whatever comes is under way.
	awaiting bool
	// failing: the last request did not succeed.
	failing bool
}

// held is a message under a lease.
type held struct {
	broker.Delivery
	lane *lane
	// since is when it came, and leased is when its lease was renewed, if it was.
	since    time.Time
	leased   atomic.Pointer[time.Time]
	renewing bool
	ticket   breaker.Ticket
}

func newYard(now func() time.Time, giveBack func(*held)) *yard {
	y := &yard{leased: map[*held]struct{}{}, now: now, giveBack: giveBack}
	y.work, y.room, y.metered = sync.NewCond(&y.mu), sync.NewCond(&y.mu), sync.NewCond(&y.mu)
	return y
}

func newQueue(settings queueSettings, limiter broker.RateLimiter) *queue {
	q := &queue{settings: settings, breaker: breaker.New(settings.breaker), limiter: limiter, hand: 1}
	weights, sum := make([]int, len(settings.Priorities)), 0
	for i, p := range settings.Priorities {
		weights[i] = p.Weight
		sum += p.Weight
	}
	for i := range weights {
		q.lanes = append(q.lanes, &lane{queue: q, index: i, weight: float64(settings.weight*weights[i]) / float64(sum)})
	}
	q.shares = wrr.New(weights)
	return q
}

// set makes these the queues that are worked on, by so many jobs at a time with so many
// messages at most.
func (y *yard) set(queues []*queue, concurrency, most int) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.queues, y.concurrency, y.most = queues, concurrency, most
	weights := make([]int, len(queues))
	for i, q := range queues {
		weights[i] = q.settings.weight
	}
	y.shares = wrr.New(weights)
	y.wake()
}

func (y *yard) wake() {
	y.work.Broadcast()
	y.room.Broadcast()
	y.metered.Broadcast()
}

// limited tells whether the queue's jobs need grants.
func (q *queue) limited() bool { return q.limiter != nil && q.limiter.IsLimited() }

// blocked tells whether a more urgent priority comes first, strictly.
func (l *lane) blocked() bool {
	if !l.queue.settings.StrictPriority {
		return false
	}
	for _, other := range l.queue.lanes[:l.index] {
		if len(other.held) > 0 || other.hungry() {
			return true
		}
	}
	return false
}

// overtaken is how many messages are held that this lane's come before, strictly: they
// must not take its room, or they would wait for it and it for them.
func (l *lane) overtaken() int {
	if !l.queue.settings.StrictPriority {
		return 0
	}
	n := 0
	for _, other := range l.queue.lanes[l.index+1:] {
		n += len(other.held)
	}
	return n
}

// hungry tells whether more is known to wait at the broker.
func (l *lane) hungry() bool { return l.behind > 0 && !l.failing }

// pick picks a lane among those that are eligible, by the queues' weights and then the
// priorities'.
func (y *yard) pick(eligible func(*lane) bool) (q int, l *lane) {
	q = y.shares.Next(func(i int) bool {
		return slices.ContainsFunc(y.queues[i].lanes, eligible)
	})
	if q < 0 {
		return q, nil
	}
	lanes := y.queues[q].lanes
	if y.queues[q].settings.StrictPriority {
		for _, l := range lanes {
			if eligible(l) {
				return q, l
			}
		}
	}
	return q, lanes[y.queues[q].shares.Next(func(i int) bool { return eligible(lanes[i]) })]
}

// next is told how the job before ended, if there was one, and waits for a message to
// begin. It is nil when there will be none any more.
func (y *yard) next(before *held, o outcome) *held {
	y.mu.Lock()
	defer y.mu.Unlock()
	now := y.now()
	if before != nil {
		y.end(before, o, now)
	}
	for {
		if y.ended {
			return nil
		}
		if h := y.begin(now); h != nil {
			y.rouse()
			return h
		}
		y.idle++
		y.work.Wait()
		y.idle--
		y.rousing = false
		now = y.now()
	}
}

// rouse wakes one who runs jobs, if there is something to run and nobody is waking up
// already: that one wakes the next. So of jobs that are over at once, few who run them
// do all, and do not wait for each other.
func (y *yard) rouse() {
	if y.waiting > 0 && !y.rousing && y.idle > 0 {
		y.rousing = true
		y.work.Signal()
	}
}

func (y *yard) begin(now time.Time) *held {
	if y.draining.Load() || y.busy >= y.concurrency || y.waiting == 0 {
		return nil
	}
	i, l := y.pick(func(l *lane) bool {
		q := l.queue
		return len(l.held) > 0 && !l.blocked() && (!q.limited() || q.granted > 0) && q.breaker.Admits(now) > 0
	})
	if l == nil {
		return nil
	}
	y.shares.Take(i)
	l.queue.shares.Take(l.index)
	h := l.held[0]
	y.drop(h)
	y.busy++
	y.begun++
	if l.queue.granted > 0 {
		l.queue.granted--
	}
	h.ticket = l.queue.breaker.Begin(now)
	return h
}

// drop takes a message out of those that are held.
func (y *yard) drop(h *held) {
	l := h.lane
	if l.held[0] == h {
		l.held[0], l.held = nil, l.held[1:]
	} else {
		l.held = slices.DeleteFunc(l.held, func(other *held) bool { return other == h })
	}
	y.waiting--
	l.queue.waiting--
}

// outcome of a job, for its queue's breaker.
type outcome int

const (
	succeeded outcome = iota
	failed
	// unknown: it tells nothing of what the queue's jobs depend on.
	unknown
)

// end is told that a job ended and is settled. Whoever ran it takes the next one, so
// nobody else is woken for that; and who fetches, only once there is room for several.
func (y *yard) end(h *held, o outcome, now time.Time) {
	y.busy--
	delete(y.leased, h)
	b := h.lane.queue.breaker
	if o == unknown {
		b.Abandon(h.ticket, now)
	} else {
		b.End(h.ticket, o == failed, now)
	}
	if y.waiting <= (y.concurrency+y.ahead)/2 {
		y.room.Broadcast()
	}
}

// arrive is told of a message that came. One that is of no use goes back.
func (y *yard) arrive(l *lane, d broker.Delivery, awaited bool) {
	behind := d.PendingCount()
	y.mu.Lock()
	now := y.now()
	h := &held{Delivery: d, lane: l, since: now}
	y.leased[h] = struct{}{}
	if !awaited && l.asked > 0 {
		y.expect(l, -1)
	}
	l.behind, l.failing = behind, false
	useless := y.draining.Load() || y.ended || l.queue.gone
	if useless {
		y.returning++
	} else {
		l.held = append(l.held, h)
		y.waiting++
		l.queue.waiting++
		y.rouse()
		if l.queue.limited() {
			y.metered.Broadcast()
		}
	}
	y.mu.Unlock()
	if useless {
		y.giveBack(h)
	}
}

// returned is told that a message was handed back.
func (y *yard) returned(h *held) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.returning--
	delete(y.leased, h)
	y.wake()
}

// state as it is now; the caller has the lock.
func (y *yard) state() State {
	switch {
	case !y.draining.Load():
		return Running
	case y.busy+y.waiting+y.returning+y.fetching > 0:
		return Draining
	default:
		return Drained
	}
}

// quiet waits until the yard is drained, or done is closed. It tells whether it is.
func (y *yard) quiet(done <-chan struct{}) bool {
	stop := make(chan struct{})
	defer close(stop)
	over := false
	go func() {
		select {
		case <-done:
			y.mu.Lock()
			over = true
			y.wake()
			y.mu.Unlock()
		case <-stop:
		}
	}()
	y.mu.Lock()
	defer y.mu.Unlock()
	for y.state() != Drained && !over {
		y.room.Wait()
	}
	return y.state() == Drained
}
