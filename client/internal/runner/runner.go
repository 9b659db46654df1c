// Package runner runs jobs of queues in memory with handlers of package worker.
package runner

import (
	"context"
	"fmt"

	"github.com/yardmaster/yardmaster/internal/broker/jobkeys"
	"github.com/yardmaster/yardmaster/internal/broker/memory"
	"github.com/yardmaster/yardmaster/worker"
)

// Run runs the jobs that are due now, and returns the number of attempts.
func Run(ctx context.Context, b *memory.Broker, queue string, handler worker.Handler) int {
	attempts := 0
	end := b.Now()
	keys := jobkeys.New(b)
	for ctx.Err() == nil {
		taken, found := b.Take(queue, end)
		if !found {
			return attempts
		}
		job := &worker.Job{
			ID: taken.ID, Kind: taken.Kind, Queue: queue, Priority: taken.Priority, Payload: taken.Payload, Headers: taken.Headers,
			Attempt: taken.Attempt, MaxAttempts: taken.MaxAttempts, SentTime: taken.SentTime,
		}
		held := keys.Of(queue, taken.ID, taken.Headers)
		if taken.IsCanceled() {
			_ = held.End(ctx, true)
			taken.Cancel()
			continue
		}
		if !start(ctx, held, taken) {
			continue
		}
		err := callUntilCanceled(ctx, handler, job, taken)
		if after, isSnoozed := worker.SnoozeAfter(err); isSnoozed && !taken.IsCanceled() {
			taken.PutBack(after, nil)
			continue
		}
		attempts++
		if settle(taken, job, err) {
			_ = held.End(ctx, err != nil)
		}
	}
	return attempts
}

// start reports whether a job may run now. A job that waits for others runs in the next call. Errors of the keys, which
// occur only if the broker is unavailable, are those of a worker whose broker is: the job is delivered again.
func start(ctx context.Context, held *jobkeys.Held, taken *memory.Taken) bool {
	decision, err := held.Start(ctx, taken.SentTime, taken.Now())
	switch {
	case err != nil, decision.Postponed > 0:
		taken.PutBack(0, nil)
	case decision.Duplicate:
		taken.Cancel()
	case decision.Dead != "":
		taken.Bury(decision.Dead)
	default:
		return true
	}
	return false
}

// settle reports whether the job has ended.
func settle(taken *memory.Taken, job *worker.Job, err error) bool {
	switch {
	case err == nil:
		taken.Finish(job.Result())
	case taken.IsCanceled():
		taken.Cancel()
	case worker.IsDeadLetter(err) || taken.Attempt >= taken.MaxAttempts:
		taken.Bury(err.Error())
	default:
		delay, found := worker.RetryAfter(err)
		if !found {
			delay = taken.RetryDelay()
		}
		taken.PutBack(delay, err)
		return false
	}
	return true
}

// callUntilCanceled calls the handler with a context that ends when the job is canceled.
func callUntilCanceled(ctx context.Context, handler worker.Handler, job *worker.Job, taken *memory.Taken) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-taken.Canceled():
			cancel(worker.ErrCanceled)
		case <-ctx.Done():
		}
	}()
	return call(ctx, handler, job)
}

// call returns a panic of the handler as an error.
func call(ctx context.Context, handler worker.Handler, job *worker.Job) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("panic: %v", reason)
		}
	}()
	return handler(ctx, job)
}
