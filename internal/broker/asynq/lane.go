package asynq

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	goredis "github.com/redis/go-redis/v9"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/redisclient"
)

const (
	// most tasks that a lane's server may have at a time: more than a worker holds.
	most = 1 << 14
	// forwardEvery is the time between two looks for delayed tasks that are due, by each
	// worker.
	forwardEvery = time.Second
	// abandonAfter is how long tasks whose handlers have not ended hold up the end of a
	// connection.
	abandonAfter = time.Second
	// again is the time before another try at a task that was there, and was not had: the
	// queue is paused, or another worker was faster.
	again = 100 * time.Millisecond
	// overdue is how long after its time the end of a request is waited for.
	overdue = 2 * time.Second
)

// lane has the messages of a queue, from an asynq server of its own.
type lane struct {
	*Engine
	queue, priority string
	server          *asynq.Server

	mu sync.Mutex
	// changed tells of a new request, or of the end.
	changed *sync.Cond
	// request that is under way, and who was the last to ask.
	request *request
	receive func(broker.Delivery)
	stopped bool
	// empty is closed once the lane is stopped and nothing is delivered any more.
	empty chan struct{}
	// abandoning: tasks are given back whose handlers have not ended.
	abandoning bool
	// popped are tasks that were taken and have not come yet, delivered those that have and
	// are not settled.
	popped    map[string]popped
	delivered map[string]*delivery
}

// request for tasks.
type request struct {
	// wanted tasks are still to be taken, coming ones were and have not come.
	wanted, coming, got int
	// until is when to stop waiting for one; zero: at once.
	until time.Time
	// tried: there was something, and it could not be had.
	tried  bool
	err    error
	done   chan struct{}
	isDone bool
}

// popped is what is known of a task from when it was taken.
type popped struct {
	since  time.Time
	behind uint64
}

func (e *Engine) newLane(queue, priority string) (*lane, error) {
	l := &lane{
		Engine: e, queue: queue, priority: priority, empty: make(chan struct{}),
		popped: map[string]popped{}, delivered: map[string]*delivery{},
	}
	l.changed = sync.NewCond(&l.mu)
	l.server = asynq.NewServerFromRedisClient(&gate{e.client, l}, asynq.Config{
		Concurrency:              most,
		Queues:                   map[string]int{queue: 1},
		TaskCheckInterval:        again,
		DelayedTaskCheckInterval: forwardEvery,
		ShutdownTimeout:          abandonAfter,
		RetryDelayFunc:           delayOf,
		// What it would write, who asks is told as an error.
		Logger: mute{},
	})
	if err := l.server.Start(asynq.HandlerFunc(l.deliver)); err != nil {
		return nil, err
	}
	e.background.Go(l.shutDown)
	return l, nil
}

// Fetch hands out at most number messages that are ready now.
func (l *lane) Fetch(_ context.Context, number int, receive func(broker.Delivery)) (int, error) {
	return l.ask(&request{wanted: number}, 0, receive)
}

// Next waits up to that long for one message.
func (l *lane) Next(_ context.Context, wait time.Duration, receive func(broker.Delivery)) (int, error) {
	return l.ask(&request{wanted: 1, until: time.Now().Add(wait)}, wait, receive)
}

// ask has a request carried out, and waits for the end of what it brings.
func (l *lane) ask(r *request, wait time.Duration, receive func(broker.Delivery)) (int, error) {
	r.done = make(chan struct{})
	l.mu.Lock()
	l.request, l.receive = r, receive
	l.changed.Broadcast()
	l.mu.Unlock()

	timer := time.NewTimer(wait + answering + overdue)
	defer timer.Stop()
	select {
	case <-r.done:
	case <-timer.C:
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.request = nil
	if !r.isDone {
		r.err = context.DeadlineExceeded
	}
	return r.got, redisclient.ClassifyError("fetching from the queue "+l.queue, r.err)
}

// answering is how long the server may take for an answer before a request fails by itself.
const answering = 5 * time.Second

// next waits for a request that wants a task. It is nil when there will be none any more.
func (l *lane) next() *request {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !l.stopped && (l.request == nil || l.request.wanted == 0) {
		l.changed.Wait()
	}
	if l.stopped {
		return nil
	}
	return l.request
}

// take runs asynq's script that takes a task, each time somebody wants one. It returns
// with a task, or in the end with none.
func (l *lane) take(ctx context.Context, script run) *goredis.Cmd {
	for {
		r := l.next()
		if r == nil {
			return answer(ctx, nil, goredis.Nil)
		}
		cmd, id, p := l.pop(ctx, script)
		err := cmd.Err()
		switch {
		case err == nil:
			l.took(r, id, p)
			return cmd
		case unknownScript(err):
			return cmd
		case errors.Is(err, goredis.Nil):
			if more, err := l.linger(ctx, r); !more {
				l.end(r, err)
			}
		default:
			l.end(r, err)
		}
	}
}

// peek tells of the task that is taken next, which asynq forgets as it is taken.
const peek = `
local id = redis.call("LINDEX", KEYS[1], -1)
if not id then return {"", "", 0} end
return {id, redis.call("HGET", ARGV[1] .. id, "pending_since") or "", redis.call("LLEN", KEYS[1])}`

// pop runs the script that takes a task, and tells what it took.
func (l *lane) pop(ctx context.Context, script run) (cmd *goredis.Cmd, id string, p popped) {
	var told *goredis.Cmd
	// What fails is told by each command.
	_, _ = l.client.TxPipelined(ctx, func(pipe goredis.Pipeliner) error {
		told = pipe.Eval(ctx, peek, []string{pendingOf(l.queue)}, taskOf(l.queue, ""))
		cmd = script(ctx, pipe)
		return nil
	})
	values, err := told.Slice()
	if err != nil || len(values) != 3 || cmd.Err() != nil {
		return cmd, "", popped{}
	}
	id, p = poppedOf(values)
	return cmd, id, p
}

// linger waits for a task, if the request does. It tells whether to try again.
func (l *lane) linger(ctx context.Context, r *request) (bool, error) {
	left := time.Until(r.until)
	if r.until.IsZero() || left <= 0 {
		return false, nil
	}
	if r.tried {
		time.Sleep(min(left, again))
	}
	var err error
	r.tried, err = l.blockFor(ctx, l.queue, max(time.Until(r.until), time.Millisecond))
	return err == nil, err
}

// took takes note of a task that was taken.
func (l *lane) took(r *request, id string, p popped) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.popped[id] = p
	r.wanted--
	r.coming++
}

// end is told that a request brings nothing more than what is coming.
func (l *lane) end(r *request, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.wanted, r.err = 0, err
	r.finish()
}

// finish ends a request once all has come.
func (r *request) finish() {
	if r.wanted == 0 && r.coming == 0 && !r.isDone {
		r.isDone = true
		close(r.done)
	}
}

// deliver is asynq's handler: it hands a task to who has asked for it, and returns what
// became of it.
func (l *lane) deliver(ctx context.Context, task *asynq.Task) error {
	d := newDelivery(ctx, l, task)
	if !l.arrive(d) {
		d.conclude(&verdict{back: true})
	}
	select {
	case v := <-d.verdict:
		return v.asynq()
	case <-ctx.Done():
		// Its time is over, or it was cancelled: asynq has it tried again.
		return ctx.Err()
	}
}

// arrive hands a task to who has asked. It tells whether there is somebody.
func (l *lane) arrive(d *delivery) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, known := l.popped[d.id]
	delete(l.popped, d.id)
	if d.since, d.behind = p.since, p.behind; d.since.IsZero() {
		d.since = time.Now()
	}
	l.delivered[d.id] = d
	if l.stopped || l.receive == nil {
		return false
	}
	l.receive(d)
	if known {
		l.came(1)
	}
	return true
}

// came is told that a task that was taken has come, or that it never will; the caller has
// the lock.
func (l *lane) came(got int) {
	if r := l.request; r != nil && r.coming > 0 {
		r.coming--
		r.got += got
		r.finish()
	}
}

// missed is told of a task that asynq settles although it was not delivered.
func (l *lane) missed(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.popped[id]; known {
		delete(l.popped, id)
		l.came(0)
		l.check()
	}
}

// settle runs a script of asynq's that settles a task.
func (l *lane) settle(ctx context.Context, id string, script run) *goredis.Cmd {
	l.mu.Lock()
	d, abandoning := l.delivered[id], l.abandoning
	l.mu.Unlock()
	if d == nil {
		// Another worker has lost it; or its time was over before it could be delivered.
		l.missed(id)
		return script(ctx, l.client)
	}
	v := d.concluded()
	if v == nil && d.ctx.Err() == nil && !abandoning {
		// A late word on an earlier delivery of the same task.
		return answer(ctx, nil, errNotFound)
	}
	cmd := (*goredis.Cmd)(nil)
	if v != nil && v.back {
		cmd = d.giveBack(ctx, v.after)
	} else {
		cmd = script(ctx, l.client)
	}
	if err := cmd.Err(); !unknownScript(err) {
		d.told(err)
	}
	return cmd
}

// over is told that nothing is left to do about a delivery.
func (l *lane) over(d *delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.delivered[d.id] == d {
		delete(l.delivered, d.id)
	}
	l.check()
}

// check tells whoever ends the lane once it is empty; the caller has the lock.
func (l *lane) check() {
	if l.stopped && len(l.delivered)+len(l.popped) == 0 {
		select {
		case <-l.empty:
		default:
			close(l.empty)
		}
	}
}

// Stop ends it. What was delivered can still be settled.
func (l *lane) Stop() {
	l.mu.Lock()
	l.stopped = true
	l.changed.Broadcast()
	l.check()
	l.mu.Unlock()
	l.server.Stop()
}

// shutDown ends the server once nothing is left to do, or the connection is to end: then
// what handlers still have is given back.
func (l *lane) shutDown() {
	select {
	case <-l.empty:
	case <-l.closing:
		l.Stop()
		l.mu.Lock()
		l.abandoning = true
		l.mu.Unlock()
	}
	l.server.Shutdown()
}
