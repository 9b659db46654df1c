package asynq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	goredis "github.com/redis/go-redis/v9"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// leasedTask implements broker.Delivery.
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
	// settledSignal is closed when asynq has stored the verdict, or can no longer store it;
	// then wasLost is true in the second case.
	settledSignal chan struct{}
	wasLost       bool
	// reportedError is why the attempt failed, if the queue keeps the state of its jobs.
	reportedError string
	isFinished    bool
}

// taskVerdict is the result of a task.
type taskVerdict struct {
	// release: as if it had never been here.
	release bool
	// reason why it failed; empty: it is done.
	reason string
	// bury: it is not tried again, after that many attempts. Otherwise, and if it is back, it is after that delay.
	bury     bool
	attempts int
	delay    time.Duration
}

// verdictError is a verdict for which asynq keeps the reason.
type verdictError taskVerdict

func (f *verdictError) Error() string { return f.reason }

// Is makes asynq archive the task if the verdict buries it.
func (f *verdictError) Is(target error) bool { return f.bury && target == asynq.SkipRetry }

// retryDelay is the delay that the worker chose, or the default of asynq for a task of a
// lost worker. asynq stores whole seconds; rounding up prevents an early attempt.
func retryDelay(attempts int, err error, task *asynq.Task) time.Duration {
	if f := (*verdictError)(nil); errors.As(err, &f) {
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

// Message implements broker.Delivery. asynq does not store when a task was sent: SentTime is
// when it became pending for this attempt.
func (d *leasedTask) Message() *broker.Message {
	return &broker.Message{
		ID: jobID(d.task.Headers(), d.id), Kind: d.task.Type(), Payload: d.task.Payload(),
		Headers: messageHeaders(d.task.Type(), d.task.Headers()), Priority: d.priority, SentTime: d.pendingSince,
	}
}

// PendingCount implements broker.Delivery.
func (d *leasedTask) PendingCount() uint64 { return d.pendingCount }

// ExtendLease implements broker.Delivery. The asynq server extends the lease; this checks
// that it holds.
func (d *leasedTask) ExtendLease(ctx context.Context) error {
	return d.deliveryError("extending the lease of", d.checkLease(ctx))
}

// errLeaseLost: the task timed out, was cancelled, or its lease expired.
var errLeaseLost = broker.Errorf(broker.ClassInvalid, "the lease is lost")

// checkLease returns an error unless this worker holds the task.
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

// Ack implements broker.Delivery.
func (d *leasedTask) Ack(ctx context.Context, confirmed bool) error {
	d.giveVerdict(&taskVerdict{})
	if !confirmed {
		return nil
	}
	return d.deliveryError("acknowledging", d.waitUntilSettled(ctx))
}

// Retry implements broker.Delivery. If the producer allows no further attempt, asynq
// archives the task.
func (d *leasedTask) Retry(ctx context.Context, delay time.Duration) error {
	d.mu.Lock()
	reason := cmp.Or(d.reportedError, "the attempt failed")
	d.mu.Unlock()
	d.giveVerdict(&taskVerdict{reason: reason, delay: delay})
	return d.deliveryError("retrying", d.waitUntilSettled(ctx))
}

// Release implements broker.Delivery.
func (d *leasedTask) Release(ctx context.Context, delay time.Duration) error {
	d.giveVerdict(&taskVerdict{release: true, delay: delay})
	return d.deliveryError("releasing", d.waitUntilSettled(ctx))
}

// Bury implements broker.Delivery.
func (d *leasedTask) Bury(ctx context.Context, reason string, attempts int) error {
	if reason == "" {
		reason = "no reason given"
	}
	d.giveVerdict(&taskVerdict{reason: reason, bury: true, attempts: attempts})
	return d.deliveryError("burying", d.waitUntilSettled(ctx))
}

// attemptsScript stores a field of a task that exists.
const attemptsScript = `
if redis.call("EXISTS", KEYS[1]) == 1 then
	redis.call("HSET", KEYS[1], ARGV[1], ARGV[2])
end
return redis.status_reply("OK")`

// Abandon implements broker.Delivery. The asynq server extends the lease until it has a verdict, so it retries the task,
// unless the lease has expired.
func (d *leasedTask) Abandon() {
	d.giveVerdict(&taskVerdict{reason: "the worker abandoned the attempt"})
}

// AttemptNumber implements broker.Delivery.
func (d *leasedTask) AttemptNumber(context.Context) (int, error) {
	return d.retryCount + 1, nil
}

// WasRemoved implements broker.Delivery. It also reports a task that asynq is about to retry
// after its timeout.
func (d *leasedTask) WasRemoved(ctx context.Context) (bool, error) {
	err := d.checkLease(ctx)
	if errors.Is(err, errLeaseLost) {
		return true, nil
	}
	return false, d.deliveryError("looking up", err)
}

// giveVerdict sets the verdict. Later verdicts are ignored.
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

// waitUntilSettled waits until asynq has stored the verdict. After a failed attempt asynq
// retries while the lease lasts, and so may the caller.
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

// recordSettleResult records the result of an attempt to settle the task.
func (d *leasedTask) recordSettleResult(err error) {
	d.mu.Lock()
	d.settleError = err
	d.mu.Unlock()
	if err == nil || isTaskNotActive(err) {
		d.finishTask(err != nil || d.currentVerdict() == nil)
	}
}

// handleContextEnd runs when asynq ends the task. If storing the verdict failed, asynq
// retries until the lease expires.
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

// finishTask runs once, when nothing is left to do.
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

// releaseScript returns a task to the pending list, or schedules it.
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

// releaseTask keeps the attempts of the task. asynq itself would count one, or archive a
// task that has none left.
func (d *leasedTask) releaseTask(ctx context.Context, delay time.Duration) *goredis.Cmd {
	due := ""
	if delay > 0 {
		due = strconv.FormatInt(time.Now().Add(roundUpToSeconds(delay)).Unix(), 10)
	}
	keys := []string{activeKey(d.queue), leaseKey(d.queue), pendingKey(d.queue), scheduledKey(d.queue), taskKey(d.queue, d.id)}
	return d.client.Eval(ctx, releaseScript, keys, d.id, due, d.pendingSince.UnixNano())
}

func (d *leasedTask) deliveryError(operation string, err error) error {
	return queueError(operation+" message "+d.id+" of", d.queue, err)
}
