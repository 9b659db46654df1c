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

	// Ensure makes the queue what it is to be, or tells in what it is not.
	Ensure(ctx context.Context, queue Queue) (Outcome, error)
	// Pause stops messages from being given to workers, or lets them.
	Pause(ctx context.Context, queue string, paused bool) error
	// Figures are how much there is to do, in few cheap requests.
	Figures(ctx context.Context, queue string) (Figures, error)
	// Wait returns as soon as the queue has a message for workers, or ctx ends. It does not
	// poll.
	Wait(ctx context.Context, queue string) error
	// Rescue makes dead letters of messages that the broker has given up on by itself. It
	// returns how many.
	Rescue(ctx context.Context, queue string) (int, error)
	// DeadLetters are the queue's dead letters.
	DeadLetters(queue string) DeadLetters

	// Source is where a worker gets the queue's messages from.
	Source(ctx context.Context, queue string) (Source, error)

	// Close lets the queue take no more messages, for it to run empty.
	Close(ctx context.Context, queue string, owner Owner) error
	// Release lets another object own the queue, and leaves it as it is.
	Release(ctx context.Context, queue string, owner Owner) error
	// Delete removes the queue with all that is in it, its dead letters too. A queue that
	// is not there is deleted.
	Delete(ctx context.Context, queue string, owner Owner) error

	// Disconnect ends the connection.
	Disconnect()
}

// Outcome is what Ensure has found and done.
type Outcome struct {
	// Created: the queue was not there.
	Created bool
	// Updated: the Queue asks for something else than the last time.
	Updated bool
	// Drift is what was not as it had been made.
	Drift []Difference
	// Corrected: the drift is gone.
	Corrected bool
	// Enforcement is who keeps to which field, for this queue.
	Enforcement Capabilities
	// Retiring are priorities that the Queue has no more, kept until they are empty.
	Retiring []string
}

// Difference is one setting that is not what it is to be.
type Difference struct {
	// Object of the broker, and its setting.
	Object, Setting string
	Want, Found     string
}

func (d Difference) String() string {
	return d.Object + ": " + d.Setting + " is " + d.Found + ", should be " + d.Want
}

// Figures are how much there is to do.
type Figures struct {
	// Ready messages can be taken by workers.
	Ready int64
	// InFlight messages are with workers, or wait for another attempt.
	InFlight int64
	// Delayed messages are not yet due.
	Delayed int64
	// Dead letters.
	Dead int64
	// Oldest is when the oldest message that is ready was sent; zero if none is.
	Oldest time.Time
	// Arrivals counts messages since the queue was made. It only grows.
	Arrivals uint64
	// At is when this was so, by the broker's clock.
	At time.Time
}
