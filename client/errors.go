package client

import (
	"errors"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// The reasons of an Error, for errors.Is.
var (
	// ErrInvalid: a field of the job or of the options is invalid.
	ErrInvalid error = broker.FailureInvalid
	// ErrUnknownQueue: the broker has no such queue.
	ErrUnknownQueue error = broker.FailureUnknownQueue
	// ErrUnknownPriority: the queue has no such priority.
	ErrUnknownPriority error = broker.FailureUnknownPriority
	// ErrDraining: the queue rejects new jobs, because its Queue is being deleted with deletionPolicy Drain.
	ErrDraining error = broker.FailureDraining
	// ErrQueueFull: the queue has maxBacklog jobs. It is retryable.
	ErrQueueFull error = broker.FailureQueueFull
	// ErrPayloadTooLarge: the broker does not accept a message of this size.
	ErrPayloadTooLarge error = broker.FailurePayloadTooLarge
	// ErrUnsupported: the engine or the queue does not support an option.
	ErrUnsupported error = broker.FailureUnsupported
	// ErrUnauthorized: the broker rejects the login, or does not permit the request.
	ErrUnauthorized error = broker.FailureUnauthorized
	// ErrUnavailable: the broker has not confirmed the job in time, because it is unreachable, overloaded or out of
	// storage, or because the context ended. The job may be stored nevertheless. It is retryable: with an ID that
	// you choose, the queue keeps one of the jobs of all attempts.
	ErrUnavailable error = broker.FailureUnavailable
	// ErrClosed: the client is closed.
	ErrClosed error = broker.FailureClosed
)

// Error is why a job was not enqueued.
type Error struct {
	// Reason is one of the variables above.
	Reason error
	// Queue is the name of the queue; empty if the error is not about one.
	Queue string
	// JobID is the ID of the job; empty if the error is not about one.
	JobID string
	// Field is the option that caused the error, such as "priority" or "headers[Tenant]"; empty if it is none.
	Field string
	// Err is the cause. Its text begins with Field.
	Err error
}

func (e *Error) Error() string {
	if e.Queue == "" {
		return e.Err.Error()
	}
	return "enqueueing a job to " + e.Queue + ": " + e.Err.Error()
}

// Unwrap returns the reason and the cause.
func (e *Error) Unwrap() []error { return []error{e.Reason, e.Err} }

// IsRetryable reports whether the same call may succeed later without a change of the job, of the queue or of the
// login.
func IsRetryable(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrQueueFull)
}

// newError returns nil for nil.
func newError(queue, id string, err error) error {
	if err == nil {
		return nil
	}
	result := &Error{Reason: ErrUnavailable, Queue: queue, JobID: id, Err: err}
	if sending := (*broker.SendError)(nil); errors.As(err, &sending) {
		result.Reason, result.Field = sending.Failure, sending.Field
	}
	return result
}
