package asynq

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	goredis "github.com/redis/go-redis/v9"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/redisclient"
)

// leasedTask is a message that a worker has under a lease.
type leasedTask struct {
	*taskConsumer
	// ctx is asynq's for the task: it ends when the task is settled, or asynq has taken it
	// away.
	ctx  context.Context //nolint:containedctx // the life of the delivery, not of a call
	task *asynq.Task
	id   string
	// retryCount is how often it was tried before.
	retryCount   int
	pendingSince time.Time
	pendingCount uint64

	verdicts chan *taskVerdict

	mu sync.Mutex
	// givenVerdict is the verdict that was given, failure what came of the last try to carry it out.
	givenVerdict *taskVerdict
	settleError  error
	// settledSignal is closed once asynq's storage has it, or never will; then lost tells which.
	settledSignal chan struct{}
	wasLost       bool
	isFinished    bool
}

// taskVerdict is what became of a task.
type taskVerdict struct {
	// release: as if it had never been here.
	release bool
	// reason why it failed; empty: it is done.
	reason string
	// bury: it is not tried again. Otherwise, and if it is back, it is after that delay.
	bury  bool
	delay time.Duration
}

// handlerResult is the verdict as asynq's server reads it.
func (v *taskVerdict) handlerResult() error {
	switch {
	case v.release, v.reason == "":
		return nil
	}
	return (*failedVerdict)(v)
}

// failedVerdict is a verdict for which asynq keeps the reason.
type failedVerdict taskVerdict

func (f *failedVerdict) Error() string { return f.reason }

// Is tells asynq whether to archive the task.
func (f *failedVerdict) Is(target error) bool { return f.bury && target == asynq.SkipRetry }

// retryDelay tells asynq when a task is tried again: by the delay that its worker said, and
// after a lost worker by asynq's own rule. asynq keeps whole seconds, and no attempt is to
// come too early.
func retryDelay(attempts int, err error, task *asynq.Task) time.Duration {
	if f := (*failedVerdict)(nil); errors.As(err, &f) {
		return roundUpToSeconds(f.delay)
	}
	return asynq.DefaultRetryDelayFunc(attempts, err, task)
}

func roundUpToSeconds(delay time.Duration) time.Duration {
	if delay <= 0 {
		return 0
	}
	return delay + time.Second - time.Nanosecond
}

func newLeasedTask(ctx context.Context, l *taskConsumer, task *asynq.Task) *leasedTask {
	id, _ := asynq.GetTaskID(ctx)
	retried, _ := asynq.GetRetryCount(ctx)
	d := &leasedTask{
		taskConsumer: l, ctx: ctx, task: task, id: id, retryCount: retried, verdicts: make(chan *taskVerdict, 1), settledSignal: make(chan struct{}),
	}
	context.AfterFunc(ctx, d.handleContextEnd)
	return d
}

func parseDequeued(values []any) (id string, p dequeuedTask) {
	id = fmt.Sprint(values[0])
	if since, err := strconv.ParseInt(fmt.Sprint(values[1]), 10, 64); err == nil {
		p.pendingSince = time.Unix(0, since)
	}
	if length, is := values[2].(int64); is && length > 0 {
		p.pendingCount = uint64(length) - 1
	}
	return id, p
}

// Message is what was sent. When its producer sent it, asynq does not know: it is when the
// task could first be taken, in this attempt.
func (d *leasedTask) Message() *broker.Message {
	return &broker.Message{
		ID: d.id, Payload: d.task.Payload(), Headers: messageHeaders(d.task.Type(), d.task.Headers()), Priority: d.priority, SentTime: d.pendingSince,
	}
}

// PendingCount is how many more waited when it was delivered.
func (d *leasedTask) PendingCount() uint64 { return d.pendingCount }

// ExtendLease asks whether the lease holds: asynq's server extends it.
func (d *leasedTask) ExtendLease(ctx context.Context) error {
	return d.deliveryError("renewing the lease of", d.checkLease(ctx))
}

// errLeaseLost tells that asynq has taken the task away: its time is over, it was cancelled, or
// its lease was lost.
var errLeaseLost = broker.Errorf(broker.ClassInvalid, "asynq has taken it away")

// checkLease fails unless the task is with this worker.
func (d *leasedTask) checkLease(ctx context.Context) error {
	if d.ctx.Err() != nil {
		return errLeaseLost
	}
	err := d.client.ZScore(ctx, leaseKey(d.queue), d.id).Err()
	if errors.Is(err, goredis.Nil) {
		return errLeaseLost
	}
	return err
}

// Ack removes the message from its queue.
func (d *leasedTask) Ack(ctx context.Context, confirmed bool) error {
	d.giveVerdict(&taskVerdict{})
	if !confirmed {
		return nil
	}
	return d.deliveryError("acknowledging", d.waitUntilSettled(ctx))
}

// Retry has it delivered again after that delay. If its producer allows no more attempts,
// asynq makes it a dead letter.
func (d *leasedTask) Retry(ctx context.Context, delay time.Duration) error {
	d.giveVerdict(&taskVerdict{reason: "the attempt failed", delay: delay})
	return d.deliveryError("handing back", d.waitUntilSettled(ctx))
}

// Release has it delivered again as if it had never been here.
func (d *leasedTask) Release(ctx context.Context, delay time.Duration) error {
	d.giveVerdict(&taskVerdict{release: true, delay: delay})
	return d.deliveryError("handing back unused", d.waitUntilSettled(ctx))
}

// Bury makes it a dead letter. asynq keeps its own count of the attempts.
func (d *leasedTask) Bury(ctx context.Context, reason string, _ int) error {
	if reason == "" {
		reason = "no reason given"
	}
	d.giveVerdict(&taskVerdict{reason: reason, bury: true})
	return d.deliveryError("burying", d.waitUntilSettled(ctx))
}

// AttemptNumber counts how often it has been tried, this time included.
func (d *leasedTask) AttemptNumber(context.Context) (int, error) {
	return d.retryCount + 1, nil
}

// WasRemoved tells whether somebody else has removed it from its queue, or is about to: asynq has
// it tried again once its time here is over.
func (d *leasedTask) WasRemoved(ctx context.Context) (bool, error) {
	err := d.checkLease(ctx)
	if errors.Is(err, errLeaseLost) {
		return true, nil
	}
	return false, d.deliveryError("looking for", err)
}

// giveVerdict gives the verdict. Only the first counts.
func (d *leasedTask) giveVerdict(v *taskVerdict) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.givenVerdict == nil {
		d.givenVerdict = v
		d.verdicts <- v
	}
}

func (d *leasedTask) currentVerdict() *taskVerdict {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.givenVerdict
}

// waitUntilSettled waits until asynq's storage has the verdict. If a try failed, asynq tries again
// for as long as the lease lasts, and so may who asks.
func (d *leasedTask) waitUntilSettled(ctx context.Context) error {
	select {
	case <-d.settledSignal:
	case <-d.ctx.Done():
	case <-ctx.Done():
		return ctx.Err()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.isFinished && !d.wasLost:
		return nil
	case !d.isFinished && d.settleError != nil:
		return d.settleError
	}
	return errLeaseLost
}

// recordSettleResult is told what came of a try to settle the task.
func (d *leasedTask) recordSettleResult(err error) {
	d.mu.Lock()
	d.settleError = err
	d.mu.Unlock()
	if err == nil || isTaskNotActive(err) {
		d.finishTask(err != nil || d.currentVerdict() == nil)
	}
}

// handleContextEnd is called when asynq is done with the task. If it could not store that, it tries
// again until the lease is over.
func (d *leasedTask) handleContextEnd() {
	d.mu.Lock()
	failed := d.settleError != nil
	d.mu.Unlock()
	if failed {
		time.AfterFunc(leaseDuration, func() { d.finishTask(true) })
		return
	}
	d.finishTask(true)
}

// finishTask is told once that nothing is left to do, and whether the task was lost.
func (d *leasedTask) finishTask(lost bool) {
	d.mu.Lock()
	first := !d.isFinished
	if first {
		d.isFinished, d.wasLost = true, lost
		close(d.settledSignal)
	}
	d.mu.Unlock()
	if first {
		d.removeTask(d)
	}
}

// releaseScript gives a task back: to be taken next, or as one that was sent for later.
const releaseScript = `
if redis.call("LREM", KEYS[1], 0, ARGV[1]) == 0 then
	return redis.error_reply("NOT FOUND")
end
redis.call("ZREM", KEYS[2], ARGV[1])
if ARGV[2] == "" then
	redis.call("RPUSH", KEYS[3], ARGV[1])
	redis.call("HSET", KEYS[5], "state", "pending", "pending_since", ARGV[3])
else
	redis.call("ZADD", KEYS[4], ARGV[2], ARGV[1])
	redis.call("HSET", KEYS[5], "state", "scheduled")
end
return redis.status_reply("OK")`

// releaseTask gives the task back, with the attempts it had. asynq itself would count one, or
// archive a task that has none left.
func (d *leasedTask) releaseTask(ctx context.Context, delay time.Duration) *goredis.Cmd {
	due := ""
	if delay > 0 {
		due = strconv.FormatInt(time.Now().Add(roundUpToSeconds(delay)).Unix(), 10)
	}
	keys := []string{activeKey(d.queue), leaseKey(d.queue), pendingKey(d.queue), scheduledKey(d.queue), taskKey(d.queue, d.id)}
	return d.client.Eval(ctx, releaseScript, keys, d.id, due, d.pendingSince.UnixNano())
}

func (d *leasedTask) deliveryError(doing string, err error) error {
	return redisclient.ClassifyError(doing+" message "+d.id+" of the queue "+d.queue, err)
}
