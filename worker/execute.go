package worker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/worker/internal/backoff"
)

// errLeaving is why a handler's context ends: the worker has no more time to wait.
var errLeaving = errors.New("the worker has to end")

// executor runs one job after another.
func (w *Worker) executor() {
	var o outcome
	for h := w.yard.next(nil, o); h != nil; h = w.yard.next(h, o) {
		o = w.execute(h)
	}
}

// execute runs a job and settles it.
func (w *Worker) execute(h *held) outcome {
	ctx := w.settling
	attempt, err := h.AttemptNumber(ctx)
	if err != nil {
		w.log.Warn("A job's attempts are not known; it is put off", "error", err)
		w.settle(h, resultPutOff, func(ctx context.Context) error { return h.Retry(ctx, time.Second) })
		return unknown
	}
	s := &h.lane.queue.settings
	if attempt > s.Retry.MaxAttempts {
		// Nobody told how the last attempt ended: its worker was lost.
		w.bury(h, "the worker was lost in each of the last attempts", attempt-1)
		return unknown
	}
	job := jobOf(h, attempt)
	began := w.yard.now()
	w.metrics.waited(began.Sub(job.Sent))
	err = w.call(job)
	ended := w.yard.now()
	w.metrics.took(ended.Sub(began))
	w.tally(err)
	return w.conclude(h, job, err, ended)
}

func jobOf(h *held, attempt int) *Job {
	m, s := h.Message(), &h.lane.queue.settings
	return &Job{
		ID: m.ID, Queue: s.Name, Priority: m.Priority, Payload: m.Payload, Headers: m.Headers,
		Attempt: attempt, MaxAttempts: s.Retry.MaxAttempts, Sent: m.SentTime,
	}
}

// call calls the handler, and makes an error of a panic.
func (w *Worker) call(job *Job) (err error) {
	defer func() {
		if value := recover(); value != nil {
			w.log.Error("A handler panicked", "queue", job.Queue, "job", job.ID, "panic", value, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", value)
		}
	}()
	return w.handler(w.handling, job)
}

// tally counts what a handler returned. A job that was not tried, or not let finish, tells
// nothing of the handler.
func (w *Worker) tally(err error) {
	switch {
	case err == nil:
		w.succeeded.Add(1)
	case !IsPutBack(err) && !w.cutShort(err):
		w.failed.Add(1)
	}
}

// cutShort tells whether a handler did not finish because the worker could not wait.
func (w *Worker) cutShort(err error) bool {
	return errors.Is(context.Cause(w.handling), errLeaving) && errors.Is(err, context.Canceled)
}

// conclude settles a job by what its handler returned, and when.
func (w *Worker) conclude(h *held, job *Job, err error, ended time.Time) outcome {
	lost, draining := w.yard.lost(h, ended)
	if lost && w.stale(h, err) {
		return outcomeOf(err)
	}
	untried := (*putBackError)(nil)
	switch {
	case err == nil:
		w.done(h, draining)
	case w.cutShort(err):
		w.settle(h, resultReturned, back(h, 0))
		return unknown
	case errors.As(err, &untried):
		w.log.Warn("A job could not be tried", "queue", job.Queue, "job", job.ID, "error", err)
		w.settle(h, resultReturned, back(h, untried.after))
	case IsDeadLetter(err) || job.Attempt >= job.MaxAttempts:
		w.bury(h, err.Error(), job.Attempt)
	default:
		delay, asked := RetryAfter(err)
		if !asked {
			delay = backoff.Delay(h.lane.queue.settings.Retry, job.Attempt, rand.Float64()) //nolint:gosec // to spread, not to hide
		}
		w.log.Debug("A job failed and will be tried again", "queue", job.Queue, "job", job.ID, "attempt", job.Attempt, "after", delay, "error", err)
		w.settle(h, resultRetried, func(ctx context.Context) error { return h.Retry(ctx, delay) })
	}
	return outcomeOf(err)
}

// outcomeOf a job tells how what it depends on does. A job that cannot be done by
// anybody tells nothing against that.
func outcomeOf(err error) outcome {
	if err == nil || IsDeadLetter(err) {
		return succeeded
	}
	return failed
}

// stale deals with a job whose lease is over. It tells whether nothing else is left to
// do: another has it, and what became of it here counts only if it is done.
func (w *Worker) stale(h *held, err error) bool {
	gone, unsure := h.WasRemoved(w.settling)
	switch {
	case gone, err != nil:
		w.metrics.count(resultStale)
	case unsure == nil:
		w.metrics.count(resultLate)
		return false
	}
	w.log.Warn("A job ended after its lease was lost", "queue", h.lane.queue.settings.Name, "job", h.Message().ID, "done", err == nil, "gone", gone)
	return gone || err != nil
}

// done acknowledges a job. While the worker drains it waits for the broker's word: those
// are the last things it says.
func (w *Worker) done(h *held, draining bool) {
	if !draining && h.Ack(w.settling, false) == nil {
		w.metrics.done.Inc()
		return
	}
	w.settle(h, resultDone, func(ctx context.Context) error { return h.Ack(ctx, true) })
}

// bury makes a dead letter of a job, or drops it where there are none.
func (w *Worker) bury(h *held, reason string, attempts int) {
	s := &h.lane.queue.settings
	w.log.Warn("A job is not tried again", "queue", s.Name, "job", h.Message().ID, "attempts", attempts, "kept", s.DeadLetter.Enabled, "reason", reason)
	if !s.DeadLetter.Enabled {
		w.settle(h, resultDropped, func(ctx context.Context) error { return h.Ack(ctx, true) })
		return
	}
	w.settle(h, resultDead, func(ctx context.Context) error { return h.Bury(ctx, reason, attempts) })
}

func back(h *held, after time.Duration) func(context.Context) error {
	return func(ctx context.Context) error { return h.Release(ctx, after) }
}

// settleTimeout is how long one try to tell the broker may take.
const settleTimeout = 5 * time.Second

// settle tells the broker what became of a job, again and again while the lease lasts:
// after that another has it anyway.
func (w *Worker) settle(h *held, result string, tell func(context.Context) error) {
	for tries := 1; ; tries++ {
		ctx, cancel := context.WithTimeout(w.settling, settleTimeout)
		err := tell(ctx)
		cancel()
		if err == nil {
			w.metrics.count(result)
			return
		}
		if lost, _ := w.yard.lost(h, w.yard.now()); lost || w.settling.Err() != nil || broker.ClassOf(err) == broker.ClassInvalid {
			w.metrics.count(resultUnsettled)
			w.log.Error("The broker could not be told what became of a job", "queue", h.lane.queue.settings.Name, "job", h.Message().ID, "result", result, "error", err)
			return
		}
		sleep(w.settling, broker.ReconnectDelay(tries, rand.Float64())) //nolint:gosec // to spread, not to hide
	}
}

// giveBack hands a message back, as if it had never been here.
func (w *Worker) giveBack(h *held) {
	w.background.Go(func() {
		w.settle(h, resultReturned, back(h, 0))
		w.yard.returned(h)
	})
}

// sleep waits that long, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
