package broker

import (
	"context"
	"time"
)

// Engine is a connection to a broker that holds queues. Its methods are safe for concurrent
// use, and their errors have a class.
type Engine interface {
	// Capabilities returns who enforces which field of a QueueConfig.
	Capabilities() Capabilities

	// EnsureQueue creates or updates the queue, and reports drift.
	EnsureQueue(ctx context.Context, queue QueueConfig) (EnsureResult, error)
	// Stats returns the statistics of a queue, with few and cheap requests.
	Stats(ctx context.Context, queue string) (QueueStats, error)
	// WaitForMessage returns when the queue has a message for workers, or ctx ends.
	WaitForMessage(ctx context.Context, queue string) error
	// Rescue makes dead letters of messages that the broker stopped delivering. It returns how
	// many.
	Rescue(ctx context.Context, queue string) (int, error)
	// DeadLetters returns the dead letters of a queue.
	DeadLetters(queue string) DeadLetterQueue

	// Subscribe returns the messages of a queue to a worker.
	Subscribe(ctx context.Context, queue string) (Subscription, error)

	// RejectNewMessages makes the queue reject new messages, so that it drains.
	RejectNewMessages(ctx context.Context, queue string, owner QueueOwner) error
	// ReleaseOwnership removes the owner, and leaves the queue as it is.
	ReleaseOwnership(ctx context.Context, queue string, owner QueueOwner) error
	// DeleteQueue deletes the queue with its messages and dead letters. Deleting a queue that
	// does not exist succeeds.
	DeleteQueue(ctx context.Context, queue string, owner QueueOwner) error

	// Disconnect closes the connection.
	Disconnect()
}

// EnsureResult is what EnsureQueue found and changed.
type EnsureResult struct {
	// Created: the queue did not exist.
	Created bool
	// Updated: the configuration has changed since it was last applied.
	Updated bool
	// Drift lists settings that someone else changed since they were last applied.
	Drift []SettingDifference
	// Corrected: EnsureQueue reverted the drift.
	Corrected bool
	// Enforcement is who enforces which field of this queue.
	Enforcement Capabilities
	// RetiringPriorities are no longer in the configuration; they are deleted once empty.
	RetiringPriorities []string
}

// SettingDifference is a setting on the broker that differs from the configuration.
type SettingDifference struct {
	// Object on the broker, and its setting.
	Object, Setting string
	Want, Found     string
}

func (d SettingDifference) String() string {
	return d.Object + ": " + d.Setting + " is " + d.Found + ", should be " + d.Want
}

// QueueStats is the state of a queue at MeasuredTime.
type QueueStats struct {
	// Ready is the number of messages that workers can receive.
	Ready int64
	// InFlight is the number of messages delivered to workers or waiting for a retry.
	InFlight int64
	// Delayed is the number of messages that are not due yet.
	Delayed int64
	// DeadLetters letters.
	DeadLetters int64
	// OldestReadyTime is when the oldest ready message was sent; zero if none is ready.
	OldestReadyTime time.Time
	// TotalArrivals is the cumulative number of messages received. It never decreases.
	TotalArrivals uint64
	// MeasuredTime is the time of the measurement by the clock of the broker.
	MeasuredTime time.Time
}
