package broker

import (
	"context"
	"time"
)

// Engine is a connection to a broker that holds queues. All its methods may be called at
// the same time. Their errors have a class.
type Engine interface {
	// Capabilities tell who keeps to which field of a Queue.
	Capabilities() Capabilities

	// EnsureQueue makes the queue what it is to be, or tells in what it is not.
	EnsureQueue(ctx context.Context, queue QueueConfig) (EnsureResult, error)
	// SetPaused stops messages from being given to workers, or lets them.
	SetPaused(ctx context.Context, queue string, paused bool) error
	// Stats are how much there is to do, in few cheap requests.
	Stats(ctx context.Context, queue string) (QueueStats, error)
	// WaitForMessage returns as soon as the queue has a message for workers, or ctx ends. It does not
	// poll.
	WaitForMessage(ctx context.Context, queue string) error
	// Rescue makes dead letters of messages that the broker has given up on by itself. It
	// returns how many.
	Rescue(ctx context.Context, queue string) (int, error)
	// DeadLetters are the queue's dead letters.
	DeadLetters(queue string) DeadLetterQueue

	// Subscribe is where a worker gets the queue's messages from.
	Subscribe(ctx context.Context, queue string) (Subscription, error)

	// RejectNewMessages lets the queue take no more messages, for it to run empty.
	RejectNewMessages(ctx context.Context, queue string, owner QueueOwner) error
	// ReleaseOwnership lets another object own the queue, and leaves it as it is.
	ReleaseOwnership(ctx context.Context, queue string, owner QueueOwner) error
	// DeleteQueue removes the queue with all that is in it, its dead letters too. A queue that
	// is not there is deleted.
	DeleteQueue(ctx context.Context, queue string, owner QueueOwner) error

	// Disconnect ends the connection.
	Disconnect()
}

// EnsureResult is what Ensure has found and done.
type EnsureResult struct {
	// Created: the queue was not there.
	Created bool
	// Updated: the Queue asks for something else than the last time.
	Updated bool
	// Drift is what was not as it had been made.
	Drift []SettingDifference
	// Corrected: the drift is gone.
	Corrected bool
	// Enforcement is who keeps to which field, for this queue.
	Enforcement Capabilities
	// RetiringPriorities are priorities that the Queue has no more, kept until they are empty.
	RetiringPriorities []string
}

// SettingDifference is one setting that is not what it is to be.
type SettingDifference struct {
	// Object of the broker, and its setting.
	Object, Setting string
	Want, Found     string
}

func (d SettingDifference) String() string {
	return d.Object + ": " + d.Setting + " is " + d.Found + ", should be " + d.Want
}

// QueueStats are how much there is to do.
type QueueStats struct {
	// Ready messages can be taken by workers.
	Ready int64
	// InFlight messages are with workers, or wait for another attempt.
	InFlight int64
	// Delayed messages are not yet due.
	Delayed int64
	// DeadLetters letters.
	DeadLetters int64
	// OldestReadyTime is when the oldest message that is ready was sent; zero if none is.
	OldestReadyTime time.Time
	// TotalArrivals counts messages since the queue was made. It only grows.
	TotalArrivals uint64
	// MeasuredTime is when this was so, by the broker's clock.
	MeasuredTime time.Time
}
