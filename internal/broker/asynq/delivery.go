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

// delivery is a message that a worker has under a lease.
type delivery struct {
	*lane
	// ctx is asynq's for the task: it ends when the task is settled, or asynq has taken it
	// away.
	ctx  context.Context //nolint:containedctx // the life of the delivery, not of a call
	task *asynq.Task
	id   string
	// retried is how often it was tried before.
	retried int
	since   time.Time
	behind  uint64

	verdict chan *verdict

	mu sync.Mutex
	// given is the verdict that was given, failure what came of the last try to carry it out.
	given   *verdict
	failure error
	// settled is closed once asynq's storage has it, or never will; then lost tells which.
	settled chan struct{}
	lost    bool
	isOver  bool
}

// verdict is what became of a task.
type verdict struct {
	// back: as if it had never been here.
	back bool
	// reason why it failed; empty: it is done.
	reason string
	// bury: it is not tried again. Otherwise, and if it is back, it is after that delay.
	bury  bool
	after time.Duration
}

// asynq is the verdict as asynq's server reads it.
func (v *verdict) asynq() error {
	switch {
	case v.back, v.reason == "":
		return nil
	}
	return (*failure)(v)
}

// failure is a verdict for which asynq keeps the reason.
type failure verdict

func (f *failure) Error() string { return f.reason }

// Is tells asynq whether to archive the task.
func (f *failure) Is(target error) bool { return f.bury && target == asynq.SkipRetry }

// delayOf tells asynq when a task is tried again: by the delay that its worker said, and
// after a lost worker by asynq's own rule. asynq keeps whole seconds, and no attempt is to
// come too early.
func delayOf(attempts int, err error, task *asynq.Task) time.Duration {
	if f := (*failure)(nil); errors.As(err, &f) {
		return whole(f.after)
	}
	return asynq.DefaultRetryDelayFunc(attempts, err, task)
}

func whole(delay time.Duration) time.Duration {
	if delay <= 0 {
		return 0
	}
	return delay + time.Second - time.Nanosecond
}

func newDelivery(ctx context.Context, l *lane, task *asynq.Task) *delivery {
	id, _ := asynq.GetTaskID(ctx)
	retried, _ := asynq.GetRetryCount(ctx)
	d := &delivery{
		lane: l, ctx: ctx, task: task, id: id, retried: retried, verdict: make(chan *verdict, 1), settled: make(chan struct{}),
	}
	context.AfterFunc(ctx, d.ended)
	return d
}

func poppedOf(values []any) (id string, p popped) {
	id = fmt.Sprint(values[0])
	if since, err := strconv.ParseInt(fmt.Sprint(values[1]), 10, 64); err == nil {
		p.since = time.Unix(0, since)
	}
	if length, is := values[2].(int64); is && length > 0 {
		p.behind = uint64(length) - 1
	}
	return id, p
}

// Message is what was sent. When its producer sent it, asynq does not know: it is when the
// task could first be taken, in this attempt.
func (d *delivery) Message() *broker.Message {
	return &broker.Message{
		ID: d.id, Payload: d.task.Payload(), Headers: headersOf(d.task.Type(), d.task.Headers()), Priority: d.priority, SentTime: d.since,
	}
}

// PendingCount is how many more waited when it was delivered.
func (d *delivery) PendingCount() uint64 { return d.behind }

// ExtendLease asks whether the lease holds: asynq's server extends it.
func (d *delivery) ExtendLease(ctx context.Context) error {
	return d.failed("renewing the lease of", d.leased(ctx))
}

// errTaken tells that asynq has taken the task away: its time is over, it was cancelled, or
// its lease was lost.
var errTaken = broker.Errorf(broker.ClassInvalid, "asynq has taken it away")

// leased fails unless the task is with this worker.
func (d *delivery) leased(ctx context.Context) error {
	if d.ctx.Err() != nil {
		return errTaken
	}
	err := d.client.ZScore(ctx, leaseOf(d.queue), d.id).Err()
	if errors.Is(err, goredis.Nil) {
		return errTaken
	}
	return err
}

// Ack removes the message from its queue.
func (d *delivery) Ack(ctx context.Context, confirmed bool) error {
	d.conclude(&verdict{})
	if !confirmed {
		return nil
	}
	return d.failed("acknowledging", d.confirm(ctx))
}

// Retry has it delivered again after that delay. If its producer allows no more attempts,
// asynq makes it a dead letter.
func (d *delivery) Retry(ctx context.Context, delay time.Duration) error {
	d.conclude(&verdict{reason: "the attempt failed", after: delay})
	return d.failed("handing back", d.confirm(ctx))
}

// Release has it delivered again as if it had never been here.
func (d *delivery) Release(ctx context.Context, delay time.Duration) error {
	d.conclude(&verdict{back: true, after: delay})
	return d.failed("handing back unused", d.confirm(ctx))
}

// Bury makes it a dead letter. asynq keeps its own count of the attempts.
func (d *delivery) Bury(ctx context.Context, reason string, _ int) error {
	if reason == "" {
		reason = "no reason given"
	}
	d.conclude(&verdict{reason: reason, bury: true})
	return d.failed("burying", d.confirm(ctx))
}

// AttemptNumber counts how often it has been tried, this time included.
func (d *delivery) AttemptNumber(context.Context) (int, error) {
	return d.retried + 1, nil
}

// WasRemoved tells whether somebody else has removed it from its queue, or is about to: asynq has
// it tried again once its time here is over.
func (d *delivery) WasRemoved(ctx context.Context) (bool, error) {
	err := d.leased(ctx)
	if errors.Is(err, errTaken) {
		return true, nil
	}
	return false, d.failed("looking for", err)
}

// conclude gives the verdict. Only the first counts.
func (d *delivery) conclude(v *verdict) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.given == nil {
		d.given = v
		d.verdict <- v
	}
}

func (d *delivery) concluded() *verdict {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.given
}

// confirm waits until asynq's storage has the verdict. If a try failed, asynq tries again
// for as long as the lease lasts, and so may who asks.
func (d *delivery) confirm(ctx context.Context) error {
	select {
	case <-d.settled:
	case <-d.ctx.Done():
	case <-ctx.Done():
		return ctx.Err()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.isOver && !d.lost:
		return nil
	case !d.isOver && d.failure != nil:
		return d.failure
	}
	return errTaken
}

// told is told what came of a try to settle the task.
func (d *delivery) told(err error) {
	d.mu.Lock()
	d.failure = err
	d.mu.Unlock()
	if err == nil || notFound(err) {
		d.finish(err != nil || d.concluded() == nil)
	}
}

// ended is called when asynq is done with the task. If it could not store that, it tries
// again until the lease is over.
func (d *delivery) ended() {
	d.mu.Lock()
	failed := d.failure != nil
	d.mu.Unlock()
	if failed {
		time.AfterFunc(leaseDuration, func() { d.finish(true) })
		return
	}
	d.finish(true)
}

// finish is told once that nothing is left to do, and whether the task was lost.
func (d *delivery) finish(lost bool) {
	d.mu.Lock()
	first := !d.isOver
	if first {
		d.isOver, d.lost = true, lost
		close(d.settled)
	}
	d.mu.Unlock()
	if first {
		d.over(d)
	}
}

// back gives a task back: to be taken next, or as one that was sent for later.
const back = `
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

// giveBack gives the task back, with the attempts it had. asynq itself would count one, or
// archive a task that has none left.
func (d *delivery) giveBack(ctx context.Context, delay time.Duration) *goredis.Cmd {
	due := ""
	if delay > 0 {
		due = strconv.FormatInt(time.Now().Add(whole(delay)).Unix(), 10)
	}
	keys := []string{activeOf(d.queue), leaseOf(d.queue), pendingOf(d.queue), scheduledOf(d.queue), taskOf(d.queue, d.id)}
	return d.client.Eval(ctx, back, keys, d.id, due, d.since.UnixNano())
}

func (d *delivery) failed(doing string, err error) error {
	return redisclient.ClassifyError(doing+" message "+d.id+" of the queue "+d.queue, err)
}
