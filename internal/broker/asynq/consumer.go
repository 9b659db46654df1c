package asynq

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	goredis "github.com/redis/go-redis/v9"

	"github.com/yardmaster/yardmaster/internal/broker"
)

const (
	// maxServerConcurrency is more tasks than a worker holds.
	maxServerConcurrency = 1 << 14
	// delayedTaskInterval is how often each worker moves due tasks to the pending list.
	delayedTaskInterval = time.Second
	// shutdownTimeout is how long unsettled tasks delay a disconnect.
	shutdownTimeout = time.Second
	// retryInterval is the delay after a pending task could not be dequeued, because the queue is paused or another worker was
	// faster.
	retryInterval = 100 * time.Millisecond
	// maxDequeueAge is how long a call of asynq's Dequeue may have waited when it takes a task, because the lease of the task
	// began with the call. dequeueInterval is how long asynq waits between two calls.
	maxDequeueAge   = 5 * time.Second
	dequeueInterval = 10 * time.Millisecond
	// responseGracePeriod is how long after its deadline a request may end.
	responseGracePeriod = 2 * time.Second
	// serverResponseTimeout is the response timeout of the Redis client.
	serverResponseTimeout = 5 * time.Second
)

// taskConsumer implements broker.Consumer with its own asynq server.
type taskConsumer struct {
	*Engine
	queue, priority string
	server          *asynq.Server

	mu sync.Mutex
	// requestChanged signals a new request, or the stop.
	requestChanged *sync.Cond
	// currentRequest is in progress; receive gets its tasks.
	currentRequest *fetchRequest
	receive        func(broker.Delivery)
	stopped        bool
	// drained is closed when the consumer is stopped and all tasks are settled.
	drained chan struct{}
	// isAbandoning: unsettled tasks are released.
	isAbandoning bool
	// dequeued has the tasks that asynq has not passed to the handler yet, leasedTasks those with the handler.
	dequeued    map[string]dequeuedTask
	leasedTasks map[string]*leasedTask
}

// fetchRequest is one call of Fetch or Next.
type fetchRequest struct {
	// wanted is the number of tasks to dequeue, inTransit that of tasks between dequeueing and receive.
	wanted, inTransit, received int
	// deadline of the wait for a task; zero: do not wait.
	deadline time.Time
	// sawTask: a task was pending, but could not be dequeued.
	sawTask bool
	err     error
	done    chan struct{}
	isDone  bool
}

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
		TaskCheckInterval:        dequeueInterval,
		DelayedTaskCheckInterval: delayedTaskInterval,
		ShutdownTimeout:          shutdownTimeout,
		RetryDelayFunc: func(attempts int, err error, task *asynq.Task) time.Duration {
			if v := (*taskVerdict)(nil); errors.As(err, &v) {
				return roundUpToSeconds(v.delay)
			}
			return asynq.DefaultRetryDelayFunc(attempts, err, task) // its worker is lost
		},
		// Callers receive the errors.
		LogLevel: asynq.FatalLevel,
	})
	if err := l.server.Start(asynq.HandlerFunc(l.handleTask)); err != nil {
		return nil, err
	}
	e.background.Go(func() {
		select {
		case <-l.drained:
		case <-l.disconnecting:
			l.Stop()
			l.mu.Lock()
			l.isAbandoning = true
			l.mu.Unlock()
		}
		l.server.Shutdown()
	})
	return l, nil
}

// Fetch implements broker.Consumer.
func (l *taskConsumer) Fetch(_ context.Context, number int, receive func(broker.Delivery)) (int, error) {
	return l.executeRequest(&fetchRequest{wanted: number}, 0, receive)
}

// Next implements broker.Consumer.
func (l *taskConsumer) Next(_ context.Context, wait time.Duration, receive func(broker.Delivery)) (int, error) {
	return l.executeRequest(&fetchRequest{wanted: 1, deadline: time.Now().Add(wait)}, wait, receive)
}

// executeRequest waits until all requested tasks are received.
func (l *taskConsumer) executeRequest(r *fetchRequest, wait time.Duration, receive func(broker.Delivery)) (int, error) {
	r.done = make(chan struct{})
	l.mu.Lock()
	l.currentRequest, l.receive = r, receive
	l.requestChanged.Broadcast()
	l.mu.Unlock()

	select {
	case <-r.done:
	case <-time.After(wait + serverResponseTimeout + responseGracePeriod):
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.currentRequest = nil
	if !r.isDone {
		r.err = context.DeadlineExceeded
	}
	return r.received, queueError("fetching from", l.queue, r.err)
}

// dequeueOnRequest runs the dequeue script of asynq when a request wants a task, until the script returns a task. Then, and after
// maxDequeueAge, asynq calls it again, with a new lease.
func (l *taskConsumer) dequeueOnRequest(ctx context.Context, script scriptRunner) *goredis.Cmd {
	for start := time.Now(); ; {
		l.mu.Lock()
		for !l.stopped && (l.currentRequest == nil || l.currentRequest.wanted == 0) {
			l.requestChanged.Wait()
		}
		r, stopped := l.currentRequest, l.stopped
		l.mu.Unlock()
		if stopped {
			time.Sleep(retryInterval)
			return localReply(ctx, goredis.Nil)
		}
		if time.Since(start) > maxDequeueAge {
			return localReply(ctx, goredis.Nil)
		}
		cmd, id, state := l.dequeueTask(ctx, script)
		err := cmd.Err()
		switch {
		case err == nil:
			l.mu.Lock()
			l.dequeued[id] = state
			r.wanted--
			r.inTransit++
			l.mu.Unlock()
			return cmd
		case isUnknownScript(err):
			return cmd
		case errors.Is(err, goredis.Nil):
			var tryAgain bool
			if tryAgain, err = l.waitForTask(ctx, r); tryAgain {
				continue
			}
		}
		l.mu.Lock()
		r.wanted, r.err = 0, err
		r.finishIfComplete()
		l.mu.Unlock()
	}
}

// peekScript reads the next task, because asynq deletes pending_since when it dequeues.
const peekScript = `
local id = redis.call("LINDEX", KEYS[1], -1)
if not id then return {"", "", 0} end
return {id, redis.call("HGET", ARGV[1] .. id, "pending_since") or "", redis.call("LLEN", KEYS[1])}`

// dequeueTask runs the dequeue script, and returns the task with its state before.
func (l *taskConsumer) dequeueTask(ctx context.Context, script scriptRunner) (cmd *goredis.Cmd, id string, state dequeuedTask) {
	var reply *goredis.Cmd
	// Each command has its own error.
	_, _ = l.client.TxPipelined(ctx, func(pipe goredis.Pipeliner) error {
		reply = pipe.Eval(ctx, peekScript, []string{queueKey(l.queue, pendingList)}, taskKey(l.queue, ""))
		cmd = script(ctx, pipe)
		return nil
	})
	values, err := reply.Slice()
	if err != nil || len(values) != 3 || cmd.Err() != nil {
		return cmd, "", state
	}
	if since, err := strconv.ParseInt(fmt.Sprint(values[1]), 10, 64); err == nil {
		state.pendingSince = time.Unix(0, since)
	}
	if length, isNumber := values[2].(int64); isNumber && length > 0 {
		state.pendingCount = uint64(length) - 1
	}
	return cmd, fmt.Sprint(values[0]), state
}

// waitForTask waits for a pending task until the deadline of the request. It reports whether to try again.
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

// finishIfComplete completes a request when all its tasks are received.
func (r *fetchRequest) finishIfComplete() {
	if r.wanted == 0 && r.inTransit == 0 && !r.isDone {
		r.isDone = true
		close(r.done)
	}
}

// handleTask is the asynq handler. It passes the task to the requester, and returns the verdict.
func (l *taskConsumer) handleTask(ctx context.Context, task *asynq.Task) error {
	id, _ := asynq.GetTaskID(ctx)
	retried, _ := asynq.GetRetryCount(ctx)
	d := &leasedTask{
		taskConsumer: l, ctx: ctx, task: task, id: id, retryCount: retried, verdicts: make(chan *taskVerdict, 1), settledSignal: make(chan struct{}),
	}
	context.AfterFunc(ctx, func() {
		delay := time.Duration(0)
		d.mu.Lock()
		if d.settleError != nil {
			delay = leaseDuration // until then, asynq tries again to store the verdict
		}
		d.mu.Unlock()
		time.AfterFunc(delay, func() { d.finishTask(true) })
	})
	if !l.handOverTask(d) {
		d.giveVerdict(&taskVerdict{release: true})
	}
	select {
	case v := <-d.verdicts:
		if v.reason == "" {
			return nil // the task is done, or settleTask releases it
		}
		return v
	case <-ctx.Done():
		return ctx.Err() // the task timed out or was canceled: asynq retries it
	}
}

// handOverTask reports whether a requester received the task.
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

// recordArrival ends the transit of a task, and adds it to the received ones. The caller holds the lock.
func (l *taskConsumer) recordArrival(received int) {
	if r := l.currentRequest; r != nil && r.inTransit > 0 {
		r.inTransit--
		r.received += received
		r.finishIfComplete()
	}
}

func (l *taskConsumer) settleTask(ctx context.Context, id string, script scriptRunner) *goredis.Cmd {
	l.mu.Lock()
	d, abandoning := l.leasedTasks[id], l.isAbandoning
	if _, isDequeued := l.dequeued[id]; isDequeued && d == nil {
		// The task timed out before its delivery.
		delete(l.dequeued, id)
		l.recordArrival(0)
		l.closeIfDrained()
	}
	l.mu.Unlock()
	if d == nil {
		return script(ctx, l.client) // it may also recover a task of another worker
	}
	d.mu.Lock()
	v := d.givenVerdict
	d.mu.Unlock()
	if v == nil && d.ctx.Err() == nil && !abandoning {
		// This is a late result of an earlier delivery of the same task.
		return localReply(ctx, errTaskNotActive)
	}
	cmd := (*goredis.Cmd)(nil)
	if v != nil && v.release {
		cmd = d.releaseTask(ctx, v.delay)
	} else {
		if v != nil && v.bury {
			// asynq counts deliveries: one more than attempts if the last attempt ended with its worker, and the worker that
			// buries the task has not tried it. If this request fails, so does the script that buries the task, or the dead
			// letter has the number of asynq.
			_ = d.client.Eval(ctx, fieldsScript, []string{taskKey(d.queue, d.id)}, fieldAttempts, v.attempts).Err()
		}
		cmd = script(ctx, l.client)
	}
	err := cmd.Err()
	if isUnknownScript(err) {
		return cmd
	}
	d.mu.Lock()
	d.settleError = err
	d.mu.Unlock()
	if isNotActive := err != nil && strings.HasPrefix(err.Error(), errTaskNotActive.Error()); err == nil || isNotActive {
		d.finishTask(isNotActive || v == nil)
	}
	return cmd
}

// closeIfDrained signals that a stopped consumer is drained. The caller holds the lock.
func (l *taskConsumer) closeIfDrained() {
	if l.stopped && len(l.leasedTasks)+len(l.dequeued) == 0 {
		select {
		case <-l.drained:
		default:
			close(l.drained)
		}
	}
}

// Stop implements broker.Consumer.
func (l *taskConsumer) Stop() {
	l.mu.Lock()
	l.stopped = true
	l.requestChanged.Broadcast()
	l.closeIfDrained()
	l.mu.Unlock()
	l.server.Stop()
}
