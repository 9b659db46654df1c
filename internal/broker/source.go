package broker

import (
	"context"
	"time"
)

// Subscription is where a worker gets the messages of one queue from.
type Subscription interface {
	// Consumer leads to the messages of one priority.
	Consumer(ctx context.Context, priority string) (Consumer, error)
	// RateLimiter keeps all workers of the queue to its rate limit.
	RateLimiter(ctx context.Context) (RateLimiter, error)
}

// Consumer gives messages of one priority. It is used by one caller at a time.
type Consumer interface {
	// Fetch hands out at most number messages that are ready now, and tells how many.
	Fetch(ctx context.Context, number int, receive func(Delivery)) (int, error)
	// Next waits up to that long for one message, and hands it out.
	Next(ctx context.Context, wait time.Duration, receive func(Delivery)) (int, error)
	// Stop ends it.
	Stop()
}

// Delivery is a message that a worker has under a lease. What ends it is called once.
type Delivery interface {
	Message() *Message
	// PendingCount is how many more of its priority waited when it was delivered.
	PendingCount() uint64
	// ExtendLease starts the lease anew. It fails if the broker does not confirm it.
	ExtendLease(ctx context.Context) error
	// Ack removes the message from its queue: the job is done. Confirmed waits for the
	// broker's word, which takes a round trip.
	Ack(ctx context.Context, confirmed bool) error
	// Retry has it delivered again after that delay.
	Retry(ctx context.Context, delay time.Duration) error
	// Release has it delivered again after that delay, as if it had never been here: this is
	// not an attempt.
	Release(ctx context.Context, delay time.Duration) error
	// Bury makes it a dead letter, and removes it from its queue.
	Bury(ctx context.Context, reason string, attempts int) error
	// AttemptNumber counts how often it has been tried, this time included.
	AttemptNumber(ctx context.Context) (int, error)
	// WasRemoved tells whether somebody else has removed it from its queue.
	WasRemoved(ctx context.Context) (bool, error)
}

// Message is what a producer has sent.
type Message struct {
	// ID is the broker's name of it in its queue.
	ID       string
	Payload  []byte
	Headers  map[string][]string
	Priority string
	SentTime time.Time
}

// RateLimiter lets jobs begin no faster than a queue's rate limit, over all workers.
type RateLimiter interface {
	// IsLimited tells whether there is a limit at this time.
	IsLimited() bool
	// Reserve waits until at least one job may be given a time to begin at, and returns the
	// times for at most number jobs, by this machine's clock. The times are taken, whether
	// used or not. Without a limit it returns number times that are past.
	Reserve(ctx context.Context, number int) ([]time.Time, error)
	// Stop ends it.
	Stop()
}
