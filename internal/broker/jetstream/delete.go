package jetstream

import (
	"context"
	"maps"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// RejectNewMessages lets the queue take no more messages, for it to run empty. Producers are told
// that nobody answers at its subjects.
func (e *Engine) RejectNewMessages(ctx context.Context, queue string, owner broker.QueueOwner) error {
	return e.change(ctx, "closing", queue, owner, func(c *jetstream.StreamConfig) {
		c.Subjects = []string{closedSubject(queue)}
		if c.AllowMsgSchedules {
			// What is not yet due still comes, and goes on to its subject.
			c.Subjects = append(c.Subjects, delayedSubjects(queue))
		}
	})
}

// ReleaseOwnership lets another object own the queue, and leaves it as it is.
func (e *Engine) ReleaseOwnership(ctx context.Context, queue string, owner broker.QueueOwner) error {
	return e.change(ctx, "releasing", queue, owner, func(c *jetstream.StreamConfig) {
		c.Metadata = maps.Clone(c.Metadata)
		for _, key := range []string{metaOwner, metaOwnerUID, metaOwnerCreated, metaApplied} {
			delete(c.Metadata, key)
		}
	})
}

// change changes a queue that belongs to owner. One that is not there needs no change.
func (e *Engine) change(
	ctx context.Context, doing, queue string, owner broker.QueueOwner, change func(*jetstream.StreamConfig),
) error {
	err := func() error {
		stream, err := e.js.Stream(ctx, streamOf(queue))
		if missing(err) {
			return nil
		}
		if err != nil {
			return err
		}
		config := stream.CachedInfo().Config
		if err := held(queue, &config, owner); err != nil {
			return err
		}
		change(&config)
		_, err = e.js.UpdateStream(ctx, config)
		return err
	}()
	return e.classify(doing+" the queue "+queue, err)
}

// held tells whether the queue belongs to owner, or to nobody.
func held(queue string, config *jetstream.StreamConfig, owner broker.QueueOwner) error {
	if has := ownerOf(config.Metadata); has.UID != "" && has.UID != owner.UID {
		return &broker.OwnerConflictError{Queue: queue, Owner: has}
	}
	return nil
}

// DeleteQueue removes the queue with all that is in it. The stream that says whose it is goes
// last, so that a deletion that broke off can be taken up again.
func (e *Engine) DeleteQueue(ctx context.Context, queue string, owner broker.QueueOwner) error {
	err := func() error {
		stream, err := e.js.Stream(ctx, streamOf(queue))
		if err == nil {
			config := stream.CachedInfo().Config
			err = held(queue, &config, owner)
		}
		if err != nil && !missing(err) {
			return err
		}
		if err := e.js.DeleteKeyValue(ctx, bucketOf(queue)); err != nil && !missing(err) {
			return err
		}
		for _, name := range []string{deadStreamOf(queue), streamOf(queue)} {
			if err := e.js.DeleteStream(ctx, name); err != nil && !missing(err) {
				return err
			}
		}
		return nil
	}()
	return e.classify("deleting the queue "+queue, err)
}
