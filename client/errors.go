package client

import (
	"errors"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// The reasons of an Error, for errors.Is.
var (
	// ErrInvalid: a field of the job or of the options is invalid.
	ErrInvalid = broker.ErrInvalidJob
	// ErrUnknownQueue: the broker has no such queue.
	ErrUnknownQueue = broker.ErrUnknownQueue
	// ErrUnknownPriority: the queue has no such priority.
	ErrUnknownPriority = broker.ErrUnknownPriority
	// ErrDraining: the queue rejects new jobs, because its Queue is being deleted with deletionPolicy Drain or Purge.
	ErrDraining = broker.ErrDraining
	// ErrQueueFull: the queue has maxBacklog jobs. It is retryable.
	ErrQueueFull = broker.ErrQueueFull
	// ErrPayloadTooLarge: the broker does not accept a message of this size.
	ErrPayloadTooLarge = broker.ErrPayloadTooLarge
	// ErrUnsupported: the engine or the queue does not support an option.
	ErrUnsupported = broker.ErrUnsupported
	// ErrKeyTaken: another job has the key of Unique or UniqueFor. Error.KeyHolder is its ID.
	ErrKeyTaken = broker.ErrKeyTaken
	// ErrUnauthorized: the broker rejects the login, or does not permit the request.
	ErrUnauthorized = broker.ErrUnauthorized
	// ErrUnavailable: the broker has not confirmed the job in time, because it is unreachable, overloaded or out of storage, or because the
	// context ended. The job may be stored. It is retryable: with an ID that you choose, the queue keeps one of the jobs of all attempts.
	ErrUnavailable = broker.ErrUnavailable
	// ErrClosed: Close was called.
	ErrClosed = broker.ErrClosed
)

// Error is why a job was not enqueued or canceled.
type Error struct {
	// Reason is one of the variables above.
	Reason error
	// Queue is the name of the queue; empty if the error is not about a queue.
	Queue string
	// JobID is the ID that was chosen for the job; empty if no ID was chosen.
	JobID string
	// KeyHolder is the ID of the job that has the unique key, if the reason is ErrKeyTaken; otherwise empty.
	KeyHolder string
	// Field is the option that caused the error, such as "priority" or "headers[Tenant]"; otherwise empty.
	Field string
	// Err is the cause. Its text begins with Field.
	Err error

	operation string // that failed
}

func (e *Error) Error() string {
	if e.Queue == "" {
		return e.Err.Error()
	}
	return e.operation + " " + e.Queue + ": " + e.Err.Error()
}

// Unwrap returns the reason and the cause.
func (e *Error) Unwrap() []error { return []error{e.Reason, e.Err} }

// IsRetryable reports whether the same call may succeed later without a change of the job, of the queue or of the login.
func IsRetryable(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrQueueFull)
}

// newError returns nil for nil.
func newError(queue, id string, err error) error {
	return newOperationError("enqueueing a job to", queue, id, err)
}

func newOperationError(operation, queue, id string, err error) error {
	if err == nil {
		return nil
	}
	result := &Error{Reason: ErrUnavailable, Queue: queue, JobID: id, Err: err, operation: operation}
	if sending := (*broker.SendError)(nil); errors.As(err, &sending) {
		result.Reason, result.Field, result.KeyHolder = sending.Failure, sending.Field, sending.KeyHolder
	}
	return result
}
