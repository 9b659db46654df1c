package broker

import (
	"context"
	"time"
)

// DeadLetterQueue contains the messages of a queue that are not retried. A number of 0 means
// all dead letters that exist when the call starts.
type DeadLetterQueue interface {
	// List returns at most limit dead letters with an ID greater than after, oldest first.
	List(ctx context.Context, after uint64, limit int) ([]DeadLetter, error)
	// Requeue returns the oldest dead letters to the queue, with their attempts reset. It
	// returns how many. After an interruption, the next call does not requeue the same dead
	// letter twice.
	Requeue(ctx context.Context, number int) (int, error)
	// Move makes the oldest dead letters those of another queue. It returns how many.
	Move(ctx context.Context, to string, number int) (int, error)
	// Purge deletes all dead letters.
	Purge(ctx context.Context) error
}

// DeadLetter is a message that is not retried.
type DeadLetter struct {
	// ID increases from one dead letter to the next.
	ID      uint64
	Payload []byte
	// Headers set by the producer.
	Headers  map[string][]string
	Priority string
	// Error is why the last attempt failed, in one line.
	Error    string
	Attempts int
	// MessageID is the ID that the message had in its queue, with the name of that queue on the
	// broker.
	MessageID string
	// SentTime is when the producer sent the message, DeadLetteredTime when it became a dead
	// letter.
	SentTime, DeadLetteredTime time.Time
}
