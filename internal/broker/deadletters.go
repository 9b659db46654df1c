package broker

import (
	"context"
	"time"
)

// DeadLetterQueue are the jobs of a queue that are not tried again. A number of 0 means all
// of those that are there when the call begins.
type DeadLetterQueue interface {
	// List tells of at most limit dead letters whose ID is after that one, oldest first.
	List(ctx context.Context, after uint64, limit int) ([]DeadLetter, error)
	// Requeue gives the oldest of them back to workers, as new: with none of its attempts.
	// It returns how many; one that was given back and then could not be removed is not
	// given back again.
	Requeue(ctx context.Context, number int) (int, error)
	// Move makes the oldest of them dead letters of another queue.
	Move(ctx context.Context, to string, number int) (int, error)
	// Purge drops all of them.
	Purge(ctx context.Context) error
}

// DeadLetter is a dead letter.
type DeadLetter struct {
	// ID grows from one to the next.
	ID      uint64
	Payload []byte
	// Headers that its producer gave it.
	Headers  map[string][]string
	Priority string
	// Error is why the last attempt failed, in one line.
	Error    string
	Attempts int
	// MessageID is where it was: the broker's name of it in its queue.
	MessageID string
	// SentTime is when its producer sent it, Died when it was given up.
	SentTime, DeadLetteredTime time.Time
}
