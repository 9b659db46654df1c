package worker

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Job is one message of a queue.
type Job struct {
	// ID tells it from all other jobs of its queue. It is the same each time it is tried.
	ID       string
	Queue    string
	Priority string
	Payload  []byte
	// Headers that the producer gave it.
	Headers map[string][]string
	// Attempt counts how often it has been tried, from 1. MaxAttempts is the last.
	Attempt, MaxAttempts int
	// Sent is when the producer sent it.
	Sent time.Time
}

// Handler works on a job. It returns nil if the job is done, and then the job is removed
// from its queue. After any error the job is tried again later, until its attempts are
// over; errors that have Retry, DeadLetter or PutBack in them say otherwise. A panic is an error.
//
// The context ends when the worker has no more time to wait for the job.
type Handler func(ctx context.Context, job *Job) error

// retryError is an error after which the job is tried again at a time it names.
type retryError struct{ after time.Duration }

func (e *retryError) Error() string { return fmt.Sprintf("to be tried again after %s", e.after) }

// Retry has the job tried again after that time, if it has attempts left. Wrap it to say
// why:
//
//	return fmt.Errorf("the bank is closed: %w", worker.Retry(time.Hour))
func Retry(after time.Duration) error { return &retryError{after: max(after, 0)} }

// putBackError is an error of a job that could not even be tried.
type putBackError struct{ after time.Duration }

func (e *putBackError) Error() string {
	return fmt.Sprintf("not to be tried before %s are over", e.after)
}

// PutBack has the job given back as if it had never been here, for any worker to try it
// after that time: what is needed to try it at all is not there. It is no attempt.
func PutBack(after time.Duration) error { return &putBackError{after: max(after, 0)} }

// IsPutBack tells whether an error has PutBack in it.
func IsPutBack(err error) bool {
	putBack := (*putBackError)(nil)
	return errors.As(err, &putBack)
}

// deadLetterError is an error after which the job is not tried again.
type deadLetterError struct{ reason string }

func (e *deadLetterError) Error() string { return e.reason }

// DeadLetter has the job not tried again: it becomes a dead letter, with that reason.
func DeadLetter(reason string) error { return &deadLetterError{reason: reason} }

// IsDeadLetter tells whether an error has DeadLetter in it.
func IsDeadLetter(err error) bool {
	dead := (*deadLetterError)(nil)
	return errors.As(err, &dead)
}

// RetryAfter is the time that an error with Retry in it asks for.
func RetryAfter(err error) (after time.Duration, found bool) {
	retry := (*retryError)(nil)
	if errors.As(err, &retry) {
		return retry.after, true
	}
	return 0, false
}
