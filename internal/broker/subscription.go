package broker

import (
	"context"
	"time"
)

// Subscription gives a worker the messages of one queue.
type Subscription interface {
	// Consumer returns the messages of one priority.
	Consumer(ctx context.Context, priority string) (Consumer, error)
	// RateLimiter returns the rate limiter that all workers of the queue share.
	RateLimiter(ctx context.Context) (RateLimiter, error)
}

// Consumer receives messages of one priority. It is not safe for concurrent use.
type Consumer interface {
	// Fetch passes at most number ready messages to receive, and returns how many.
	Fetch(ctx context.Context, number int, receive func(Delivery)) (int, error)
	// Next waits for one message, at most wait, passes it to receive, and returns how many.
	Next(ctx context.Context, wait time.Duration, receive func(Delivery)) (int, error)
	// Stop releases the resources. Leased messages can still be settled.
	Stop()
}

// Delivery is a message that a worker holds under a lease. Exactly one of Ack, Retry,
// Release and Bury ends it.
type Delivery interface {
	Message() *Message
	// PendingCount is the number of messages of the priority that waited at delivery.
	PendingCount() uint64
	// ExtendLease restarts the lease. It returns an error if the broker does not confirm.
	ExtendLease(ctx context.Context) error
	// Ack removes the message from its queue: the job is done. Confirmed waits for the
	// confirmation of the broker, which takes a round trip.
	Ack(ctx context.Context, confirmed bool) error
	// Retry redelivers the message after the delay.
	Retry(ctx context.Context, delay time.Duration) error
	// Release redelivers the message after the delay, and does not count as an attempt.
	Release(ctx context.Context, delay time.Duration) error
	// Bury makes the message a dead letter, and removes it from its queue.
	Bury(ctx context.Context, reason string, attempts int) error
	// AttemptNumber returns the number of this attempt, starting at 1.
	AttemptNumber(ctx context.Context) (int, error)
	// WasRemoved reports whether someone else removed the message from its queue.
	WasRemoved(ctx context.Context) (bool, error)
}

// Message is what a producer sent.
type Message struct {
	// ID identifies the message in its queue.
	ID       string
	Payload  []byte
	Headers  map[string][]string
	Priority string
	SentTime time.Time
}

// RateLimiter enforces the rate limit of a queue across all workers.
type RateLimiter interface {
	// IsLimited reports whether the queue has a rate limit now.
	IsLimited() bool
	// Reserve waits until at least one job may be scheduled, and returns start times for at
	// most number jobs, by the clock of this machine. The times are consumed, used or not.
	// Without a limit it returns number times in the past.
	Reserve(ctx context.Context, number int) ([]time.Time, error)
	// Stop ends it.
	Stop()
}
