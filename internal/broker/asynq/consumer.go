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
	// maxServerConcurrency tasks that a lane's server may have at a time: more than a worker holds.
	maxServerConcurrency = 1 << 14
	// delayedTaskInterval is the time between two looks for delayed tasks that are due, by each
	// worker.
	delayedTaskInterval = time.Second
	// shutdownTimeout is how long tasks whose handlers have not ended hold up the end of a
	// connection.
	shutdownTimeout = time.Second
	// retryInterval is the time before another try at a task that was there, and was not had: the
	// queue is paused, or another worker was faster.
	retryInterval = 100 * time.Millisecond
	// responseGracePeriod is how long after its time the end of a request is waited for.
	responseGracePeriod = 2 * time.Second
)

// taskConsumer has the messages of a queue, from an asynq server of its own.
type taskConsumer struct {
	*Engine
	queue, priority string
	server          *asynq.Server

	mu sync.Mutex
	// requestChanged tells of a new request, or of the end.
	requestChanged *sync.Cond
	// currentRequest that is under way, and who was the last to ask.
	currentRequest *fetchRequest
	receive        func(broker.Delivery)
	stopped        bool
	// drained is closed once the lane is stopped and nothing is delivered any more.
	drained chan struct{}
	// isAbandoning: tasks are given back whose handlers have not ended.
	isAbandoning bool
	// dequeued are tasks that were taken and have not come yet, delivered those that have and
	// are not settled.
	dequeued    map[string]dequeuedTask
	leasedTasks map[string]*leasedTask
}

// fetchRequest for tasks.
type fetchRequest struct {
	// wanted tasks are still to be taken, coming ones were and have not come.
	wanted, inTransit, received int
	// deadline is when to stop waiting for one; zero: at once.
	deadline time.Time
	// sawTask: there was something, and it could not be had.
	sawTask bool
	err     error
	done    chan struct{}
	isDone  bool
}

// dequeuedTask is what is known of a task from when it was taken.
type dequeuedTask struct {
	pendingSince time.Time
	pendingCount uint64
}

func (e *Engine) newTaskConsumer(queue, priority string) (*taskConsumer, error) {
	l := &taskConsumer{
		Engine: e, queue: queue, priority: priority, drained: make(chan struct{}),
		dequeued: map[string]dequeuedTask{}, leasedTasks: map[string]*leasedTask{},
	}
	l.requestChanged = sync.NewCond(&l.mu)
	l.server = asynq.NewServerFromRedisClient(&gatedClient{e.client, l}, asynq.Config{
		Concurrency:              maxServerConcurrency,
		Queues:                   map[string]int{queue: 1},
		TaskCheckInterval:        retryInterval,
		DelayedTaskCheckInterval: delayedTaskInterval,
		ShutdownTimeout:          shutdownTimeout,
		RetryDelayFunc:           retryDelay,
		// What it would write, who asks is told as an error.
		Logger: discardLogger{},
	})
	if err := l.server.Start(asynq.HandlerFunc(l.handleTask)); err != nil {
		return nil, err
	}
	e.background.Go(l.shutDownServer)
	return l, nil
}

// Fetch hands out at most number messages that are ready now.
func (l *taskConsumer) Fetch(_ context.Context, number int, receive func(broker.Delivery)) (int, error) {
	return l.executeRequest(&fetchRequest{wanted: number}, 0, receive)
}

// Next waits up to that long for one message.
func (l *taskConsumer) Next(_ context.Context, wait time.Duration, receive func(broker.Delivery)) (int, error) {
	return l.executeRequest(&fetchRequest{wanted: 1, deadline: time.Now().Add(wait)}, wait, receive)
}

// executeRequest has a request carried out, and waits for the end of what it brings.
func (l *taskConsumer) executeRequest(r *fetchRequest, wait time.Duration, receive func(broker.Delivery)) (int, error) {
	r.done = make(chan struct{})
	l.mu.Lock()
	l.currentRequest, l.receive = r, receive
	l.requestChanged.Broadcast()
	l.mu.Unlock()

	timer := time.NewTimer(wait + serverResponseTimeout + responseGracePeriod)
	defer timer.Stop()
	select {
	case <-r.done:
	case <-timer.C:
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.currentRequest = nil
	if !r.isDone {
		r.err = context.DeadlineExceeded
	}
	return r.received, redisclient.ClassifyError("fetching from the queue "+l.queue, r.err)
}

// serverResponseTimeout is how long the server may take for an answer before a request fails by itself.
const serverResponseTimeout = 5 * time.Second

// waitForRequest waits for a request that wants a task. It is nil when there will be none any more.
func (l *taskConsumer) waitForRequest() *fetchRequest {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !l.stopped && (l.currentRequest == nil || l.currentRequest.wanted == 0) {
		l.requestChanged.Wait()
	}
	if l.stopped {
		return nil
	}
	return l.currentRequest
}

// dequeueOnRequest runs asynq's script that takes a task, each time somebody wants one. It returns
// with a task, or in the end with none.
func (l *taskConsumer) dequeueOnRequest(ctx context.Context, script scriptRunner) *goredis.Cmd {
	for {
		r := l.waitForRequest()
		if r == nil {
			return localReply(ctx, nil, goredis.Nil)
		}
		cmd, id, p := l.dequeueTask(ctx, script)
		err := cmd.Err()
		switch {
		case err == nil:
			l.recordDequeued(r, id, p)
			return cmd
		case isUnknownScript(err):
			return cmd
		case errors.Is(err, goredis.Nil):
			if more, err := l.waitForTask(ctx, r); !more {
				l.endRequest(r, err)
			}
		default:
			l.endRequest(r, err)
		}
	}
}

// peekScript tells of the task that is taken next, which asynq forgets as it is taken.
const peekScript = `
local id = redis.call("LINDEX", KEYS[1], -1)
if not id then return {"", "", 0} end
return {id, redis.call("HGET", ARGV[1] .. id, "pending_since") or "", redis.call("LLEN", KEYS[1])}`

// dequeueTask runs the script that takes a task, and tells what it took.
func (l *taskConsumer) dequeueTask(ctx context.Context, script scriptRunner) (cmd *goredis.Cmd, id string, p dequeuedTask) {
	var told *goredis.Cmd
	// What fails is told by each command.
	_, _ = l.client.TxPipelined(ctx, func(pipe goredis.Pipeliner) error {
		told = pipe.Eval(ctx, peekScript, []string{pendingKey(l.queue)}, taskKey(l.queue, ""))
		cmd = script(ctx, pipe)
		return nil
	})
	values, err := told.Slice()
	if err != nil || len(values) != 3 || cmd.Err() != nil {
		return cmd, "", dequeuedTask{}
	}
	id, p = parseDequeued(values)
	return cmd, id, p
}

// waitForTask waits for a task, if the request does. It tells whether to try again.
func (l *taskConsumer) waitForTask(ctx context.Context, r *fetchRequest) (bool, error) {
	left := time.Until(r.deadline)
	if r.deadline.IsZero() || left <= 0 {
		return false, nil
	}
	if r.sawTask {
		time.Sleep(min(left, retryInterval))
	}
	var err error
	r.sawTask, err = l.waitForPending(ctx, l.queue, max(time.Until(r.deadline), time.Millisecond))
	return err == nil, err
}

// recordDequeued takes note of a task that was taken.
func (l *taskConsumer) recordDequeued(r *fetchRequest, id string, p dequeuedTask) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dequeued[id] = p
	r.wanted--
	r.inTransit++
}

// endRequest is told that a request brings nothing more than what is coming.
func (l *taskConsumer) endRequest(r *fetchRequest, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.wanted, r.err = 0, err
	r.finishIfComplete()
}

// finishIfComplete ends a request once all has come.
func (r *fetchRequest) finishIfComplete() {
	if r.wanted == 0 && r.inTransit == 0 && !r.isDone {
		r.isDone = true
		close(r.done)
	}
}

// handleTask is asynq's handler: it hands a task to who has asked for it, and returns what
// became of it.
func (l *taskConsumer) handleTask(ctx context.Context, task *asynq.Task) error {
	d := newLeasedTask(ctx, l, task)
	if !l.handOverTask(d) {
		d.giveVerdict(&taskVerdict{release: true})
	}
	select {
	case v := <-d.verdicts:
		return v.handlerResult()
	case <-ctx.Done():
		// Its time is over, or it was cancelled: asynq has it tried again.
		return ctx.Err()
	}
}

// handOverTask hands a task to who has asked. It tells whether there is somebody.
func (l *taskConsumer) handOverTask(d *leasedTask) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, known := l.dequeued[d.id]
	delete(l.dequeued, d.id)
	if d.pendingSince, d.pendingCount = p.pendingSince, p.pendingCount; d.pendingSince.IsZero() {
		d.pendingSince = time.Now()
	}
	l.leasedTasks[d.id] = d
	if l.stopped || l.receive == nil {
		return false
	}
	l.receive(d)
	if known {
		l.recordArrival(1)
	}
	return true
}

// recordArrival is told that a task that was taken has come, or that it never will; the caller has
// the lock.
func (l *taskConsumer) recordArrival(got int) {
	if r := l.currentRequest; r != nil && r.inTransit > 0 {
		r.inTransit--
		r.received += got
		r.finishIfComplete()
	}
}

// recordMissed is told of a task that asynq settles although it was not delivered.
func (l *taskConsumer) recordMissed(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.dequeued[id]; known {
		delete(l.dequeued, id)
		l.recordArrival(0)
		l.closeIfDrained()
	}
}

// settleTask runs a script of asynq's that settles a task.
func (l *taskConsumer) settleTask(ctx context.Context, id string, script scriptRunner) *goredis.Cmd {
	l.mu.Lock()
	d, abandoning := l.leasedTasks[id], l.isAbandoning
	l.mu.Unlock()
	if d == nil {
		// Another worker has lost it; or its time was over before it could be delivered.
		l.recordMissed(id)
		return script(ctx, l.client)
	}
	v := d.currentVerdict()
	if v == nil && d.ctx.Err() == nil && !abandoning {
		// A late word on an earlier delivery of the same task.
		return localReply(ctx, nil, errTaskNotActive)
	}
	cmd := (*goredis.Cmd)(nil)
	if v != nil && v.release {
		cmd = d.releaseTask(ctx, v.delay)
	} else {
		cmd = script(ctx, l.client)
	}
	if err := cmd.Err(); !isUnknownScript(err) {
		d.recordSettleResult(err)
	}
	return cmd
}

// removeTask is told that nothing is left to do about a delivery.
func (l *taskConsumer) removeTask(d *leasedTask) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leasedTasks[d.id] == d {
		delete(l.leasedTasks, d.id)
	}
	l.closeIfDrained()
}

// closeIfDrained tells whoever ends the lane once it is empty; the caller has the lock.
func (l *taskConsumer) closeIfDrained() {
	if l.stopped && len(l.leasedTasks)+len(l.dequeued) == 0 {
		select {
		case <-l.drained:
		default:
			close(l.drained)
		}
	}
}

// Stop ends it. What was delivered can still be settled.
func (l *taskConsumer) Stop() {
	l.mu.Lock()
	l.stopped = true
	l.requestChanged.Broadcast()
	l.closeIfDrained()
	l.mu.Unlock()
	l.server.Stop()
}

// shutDownServer ends the server once nothing is left to do, or the connection is to end: then
// what handlers still have is given back.
func (l *taskConsumer) shutDownServer() {
	select {
	case <-l.drained:
	case <-l.disconnecting:
		l.Stop()
		l.mu.Lock()
		l.isAbandoning = true
		l.mu.Unlock()
	}
	l.server.Shutdown()
}
