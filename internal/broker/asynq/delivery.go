package asynq

import (
	"cmp"
	"context"
	"errors"
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
	// ctx is the context of asynq for the task: it ends when the task is settled, or asynq has taken the task away.
	ctx          context.Context //nolint:containedctx // the life of the delivery, not of a call
	task         *asynq.Task
	id           string
	retryCount   int
	pendingSince time.Time
	pendingCount uint64

	verdicts chan *taskVerdict

	mu sync.Mutex
	// history is nil until it was read. isMarked: the task has the mark of its start.
	history  *broker.History
	isMarked bool
	// givenVerdict is nil until the worker has decided. settleError is the error of the last request to store it.
	givenVerdict *taskVerdict
	settleError  error
	// settledSignal is closed when asynq has stored the verdict, or, if wasLost, can no longer store it.
	settledSignal chan struct{}
	wasLost       bool
	isFinished    bool
}

// taskVerdict is the result of a task. With a reason, it is the error for which asynq retries or archives the task.
type taskVerdict struct { //nolint:errname // it is an error for asynq only
	// release: this delivery does not count.
	release bool
	// reason of the failure; empty: the task is done or released.
	reason string
	// bury: the task becomes a dead letter, after a number of attempts.
	bury     bool
	attempts int
	// delay before the next attempt of a task that failed or is released.
	delay time.Duration
}

func (v *taskVerdict) Error() string { return v.reason }

// Is makes asynq archive the task if the verdict buries it.
func (v *taskVerdict) Is(target error) bool { return v.bury && target == asynq.SkipRetry }

// roundUpToSeconds prevents an early attempt, because asynq stores whole seconds.
func roundUpToSeconds(delay time.Duration) time.Duration {
	if delay <= 0 {
		return 0
	}
	return delay + time.Second - time.Nanosecond
}

// Message implements broker.Delivery. asynq does not store when a task was sent: SentTime is the time at which the task became
// pending for this attempt.
func (d *leasedTask) Message() *broker.Message {
	return &broker.Message{
		ID: jobID(d.task.Headers(), d.id), Kind: d.task.Type(), Payload: d.task.Payload(),
		Headers: messageHeaders(d.task.Type(), d.task.Headers()), Priority: d.priority, SentTime: d.pendingSince,
	}
}

// PendingCount implements broker.Delivery.
func (d *leasedTask) PendingCount() uint64 { return d.pendingCount }

// ExtendLease implements broker.Delivery. The asynq server extends the lease; ExtendLease checks that this worker has it.
func (d *leasedTask) ExtendLease(ctx context.Context) error {
	return d.deliveryError("extending the lease of", d.checkLease(ctx))
}

// errLeaseLost: the task timed out or was canceled, or its lease expired.
var errLeaseLost = broker.Errorf(broker.ClassInvalid, "the lease is lost")

func (d *leasedTask) checkLease(ctx context.Context) error {
	if d.ctx.Err() != nil {
		return errLeaseLost
	}
	err := d.client.ZScore(ctx, queueKey(d.queue, leaseSet), d.id).Err()
	if errors.Is(err, goredis.Nil) {
		return errLeaseLost
	}
	return err
}

// Ack implements broker.Delivery.
func (d *leasedTask) Ack(ctx context.Context, confirmed bool) error {
	if confirmed {
		return d.settle(ctx, "acknowledging", &taskVerdict{})
	}
	d.giveVerdict(&taskVerdict{})
	return nil
}

// Retry implements broker.Delivery. If the producer allows no further attempt, asynq archives the task with the reason.
func (d *leasedTask) Retry(ctx context.Context, delay time.Duration, reason string) error {
	if err := d.CountFailure(ctx); err != nil {
		return err
	}
	return d.Lose(ctx, delay, reason)
}

// Lose implements broker.Delivery.
func (d *leasedTask) Lose(ctx context.Context, delay time.Duration, reason string) error {
	return d.settle(ctx, "retrying", &taskVerdict{reason: cmp.Or(broker.TruncateText(reason), "the attempt failed"), delay: delay})
}

// Release implements broker.Delivery.
func (d *leasedTask) Release(ctx context.Context, delay time.Duration) error {
	d.mu.Lock()
	isMarked, history := d.isMarked, d.history
	d.mu.Unlock()
	if isMarked {
		if err := d.storeHistory(ctx, *history); err != nil {
			return d.deliveryError("releasing", err)
		}
	}
	return d.settle(ctx, "releasing", &taskVerdict{release: true, delay: delay})
}

// Bury implements broker.Delivery.
func (d *leasedTask) Bury(ctx context.Context, reason string, attempts int) error {
	return d.settle(ctx, "burying", &taskVerdict{reason: cmp.Or(reason, "no reason given"), bury: true, attempts: attempts})
}

// Abandon implements broker.Delivery. The asynq server extends the lease until it has a verdict, so it retries the task,
// unless the lease has expired.
func (d *leasedTask) Abandon() {
	d.giveVerdict(&taskVerdict{reason: "the worker abandoned the attempt"})
}

// History implements broker.Delivery. asynq counts failed and lost deliveries together, and no others.
func (d *leasedTask) History(ctx context.Context) (broker.History, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.history != nil {
		return *d.history, nil
	}
	h := broker.History{}
	if d.retryCount > 0 {
		fields, err := d.client.HMGet(ctx, taskKey(d.queue, d.id), fieldFailed, fieldLostStarted, fieldLostAlone).Result()
		if err != nil {
			return h, d.deliveryError("counting attempts of", err)
		}
		for i, count := range []*int{&h.Failed, &h.LostStarted, &h.LostAlone} {
			text, _ := fields[i].(string)
			*count, _ = strconv.Atoi(text)
		}
		h.Lost = max(0, d.retryCount-h.Failed)
	}
	d.history = &h
	return h, nil
}

// MarkStart implements broker.Delivery.
func (d *leasedTask) MarkStart(ctx context.Context, alone bool) error {
	history, err := d.History(ctx)
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.isMarked = true
	d.mu.Unlock()
	return d.deliveryError("marking the start of", d.storeHistory(ctx, history.AfterStart(alone)))
}

// CountFailure implements broker.Delivery.
func (d *leasedTask) CountFailure(ctx context.Context) error {
	history, err := d.History(ctx)
	if err != nil {
		return err
	}
	return d.deliveryError("counting attempts of", d.storeHistory(ctx, history.AfterFailure()))
}

func (d *leasedTask) storeHistory(ctx context.Context, h broker.History) error {
	return d.client.Eval(ctx, fieldsScript, []string{taskKey(d.queue, d.id)},
		fieldFailed, h.Failed, fieldLostStarted, h.LostStarted, fieldLostAlone, h.LostAlone).Err()
}

// fieldsScript sets fields of a task. It does not create a task that was deleted.
const fieldsScript = `
if redis.call("EXISTS", KEYS[1]) == 1 then
	redis.call("HSET", KEYS[1], unpack(ARGV))
end
return redis.status_reply("OK")`

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

// settle gives the verdict, and waits until asynq has stored it. If that fails, asynq tries again while the lease lasts, and so
// may the caller.
func (d *leasedTask) settle(ctx context.Context, operation string, v *taskVerdict) error {
	d.giveVerdict(v)
	select {
	case <-d.settledSignal:
	case <-d.ctx.Done():
	case <-ctx.Done():
		return d.deliveryError(operation, ctx.Err())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.isFinished && !d.wasLost:
		return nil
	case !d.isFinished && d.settleError != nil:
		return d.deliveryError(operation, d.settleError)
	}
	return d.deliveryError(operation, errLeaseLost)
}

// finishTask ends the delivery; only its first call has an effect.
func (d *leasedTask) finishTask(lost bool) {
	d.mu.Lock()
	isFirst := !d.isFinished
	if isFirst {
		d.isFinished, d.wasLost = true, lost
		close(d.settledSignal)
	}
	d.mu.Unlock()
	if !isFirst {
		return
	}
	l := d.taskConsumer
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leasedTasks[d.id] == d {
		delete(l.leasedTasks, d.id)
	}
	l.closeIfDrained()
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

// releaseTask keeps the attempts of the task. asynq would count an attempt, or archive a task without attempts left.
func (d *leasedTask) releaseTask(ctx context.Context, delay time.Duration) *goredis.Cmd {
	due := ""
	if delay > 0 {
		due = strconv.FormatInt(time.Now().Add(roundUpToSeconds(delay)).Unix(), 10)
	}
	keys := []string{
		queueKey(d.queue, activeList), queueKey(d.queue, leaseSet), queueKey(d.queue, pendingList), queueKey(d.queue, scheduledSet),
		taskKey(d.queue, d.id),
	}
	return d.client.Eval(ctx, releaseScript, keys, d.id, due, d.pendingSince.UnixNano())
}

func (d *leasedTask) deliveryError(operation string, err error) error {
	return queueError(operation+" message "+d.id+" of", d.queue, err)
}
