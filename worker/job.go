package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/jobkeys"
	"github.com/yardmaster/yardmaster/internal/broker/jobstate"
)

// Job is one message of a queue.
type Job struct {
	// ID identifies the job within its queue. The producer chose it, or else the broker assigned it. It is the same for every attempt, also
	// after the job was a dead letter.
	ID string
	// Kind is the kind by which a Mux selects the handler; empty if the producer did not set it.
	Kind string
	// Queue and Priority are the names of the queue and the priority to which the job was sent.
	Queue, Priority string
	Payload         []byte
	// Headers that the producer set.
	Headers map[string][]string
	// Attempt is the number of this attempt, counted from 1. MaxAttempts is the number of the last attempt.
	Attempt, MaxAttempts int
	// SentTime is when the job was sent or became due; on asynq, when it became pending for this attempt.
	SentTime time.Time

	// retry is the policy of the job.
	retry broker.RetryPolicy
	// history of earlier deliveries. isAlone: the worker runs no other job.
	history broker.History
	isAlone bool
	// progress is nil if the job does not run in a worker.
	progress *progressRecorder
	// report is nil if the queue does not keep the states of its jobs.
	report *attemptReport
	// keys is nil if the job is not unique and in no batch.
	keys *jobkeys.Held
	// result is nil if the handler has set no result.
	result json.RawMessage
}

// SetResult sets the result of the job, which is stored as JSON if the handler succeeds and the queue keeps results. Call it before the
// handler returns. It returns an error if the value cannot be encoded, or has more than 64 KiB.
func (j *Job) SetResult(value any) error {
	raw, err := json.Marshal(value)
	if err == nil && len(raw) > jobstate.MaxResultBytes {
		err = fmt.Errorf("it has %d bytes, must have at most %d", len(raw), jobstate.MaxResultBytes)
	}
	if err != nil {
		return fmt.Errorf("setting the result of a job: %w", err)
	}
	j.result = raw
	return nil
}

// Result returns the result that the handler has set, as JSON; nil if it has set no result.
func (j *Job) Result() json.RawMessage { return j.result }

// Handler runs a job. If it returns nil, the job is done and is removed from its queue. If it returns an error or panics, the job is
// retried until its attempts are used up, and then becomes a dead letter, unless the error wraps the result of Retry, DeadLetter or
// Snooze.
//
// The context ends when the worker has to exit before the job is done. The job is then given back to the queue, and this attempt does not
// count. The context also ends at the timeout of the job, and with the cause ErrCanceled when somebody cancels the job: if the handler then
// returns an error, the job is not retried.
type Handler func(ctx context.Context, job *Job) error

type retryError struct{ after time.Duration }

func (e *retryError) Error() string { return fmt.Sprintf("retry after %s", e.after) }

// Retry returns an error that makes the worker retry the job after the given time instead of the delay of its retry policy. It counts as an
// attempt. Wrap it to give a reason:
//
//	return fmt.Errorf("the bank is closed: %w", worker.Retry(time.Hour))
func Retry(after time.Duration) error { return &retryError{after: max(after, 0)} }

// RetryAfter returns the time that a Retry error requests. Found is false if err wraps no Retry error.
func RetryAfter(err error) (after time.Duration, found bool) {
	retry, found := errors.AsType[*retryError](err)
	if !found {
		return 0, false
	}
	return retry.after, true
}

type snoozeError struct{ after time.Duration }

func (e *snoozeError) Error() string { return fmt.Sprintf("snooze for %s", e.after) }

// Snooze returns an error that gives the job back to its queue, to be delivered again after the given time. It does not count as an
// attempt. Use it if the job could not be tried at all, for example because a service that it needs is not running.
func Snooze(after time.Duration) error { return &snoozeError{after: max(after, 0)} }

// SnoozeAfter returns the time that a Snooze error requests. Found is false if err wraps no Snooze error.
func SnoozeAfter(err error) (after time.Duration, found bool) {
	snooze, found := errors.AsType[*snoozeError](err)
	if !found {
		return 0, false
	}
	return snooze.after, true
}

// IsSnooze reports whether err wraps a Snooze error.
func IsSnooze(err error) bool { return isErrorType[*snoozeError](err) }

// isErrorType is errors.As without an allocation, which each job that succeeds would otherwise pay several times.
func isErrorType[E error](err error) bool {
	_, is := errors.AsType[E](err)
	return is
}

type processLostError struct{ err error }

func (e *processLostError) Error() string { return e.err.Error() }

func (e *processLostError) Unwrap() error { return e.err }

// ProcessLost returns an error for a job whose process ended while it ran the job, so that this job, or another one in the process, may have
// ended it. Return it from a handler that passes jobs to another process. The worker treats the job as if the worker itself had been lost:
// it is retried, alone after the second time, and only losses of a job that runs alone count as attempts.
func ProcessLost(err error) error { return &processLostError{err: err} }

// IsProcessLost reports whether err wraps a ProcessLost error.
func IsProcessLost(err error) bool { return isErrorType[*processLostError](err) }

type deadLetterError struct{ reason string }

func (e *deadLetterError) Error() string { return e.reason }

// DeadLetter returns an error that makes the job a dead letter without further attempts. Use it if no attempt can succeed, for example
// because the payload is invalid.
func DeadLetter(reason string) error { return &deadLetterError{reason: reason} }

// IsDeadLetter reports whether err wraps a DeadLetter error.
func IsDeadLetter(err error) bool { return isErrorType[*deadLetterError](err) }
