package jetstream

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// RejectNewMessages implements broker.Engine. Producers receive "no responders". The server still moves the delayed messages that it has.
func (e *Engine) RejectNewMessages(ctx context.Context, queue string, owner broker.QueueOwner) error {
	err := e.updateOwnedStream(ctx, "closing", queue, owner, func(c *jetstream.StreamConfig) {
		c.Subjects = []string{placeholderSubject(queue)}
	})
	if err != nil {
		return err
	}
	delayed, err := e.js.Stream(ctx, delayedStreamName(queue))
	if isNotFound(err) {
		return nil
	}
	if err == nil {
		config := delayed.CachedInfo().Config
		config.Subjects = []string{guardSubject(queue)}
		_, err = e.js.UpdateStream(ctx, config)
	}
	return e.classifyError("closing the queue "+queue, err)
}

// ReleaseOwnership implements broker.Engine.
func (e *Engine) ReleaseOwnership(ctx context.Context, queue string, owner broker.QueueOwner) error {
	return e.updateOwnedStream(ctx, "releasing", queue, owner, func(c *jetstream.StreamConfig) {
		c.Metadata = withOwner(c.Metadata, owner.Released())
		delete(c.Metadata, metaApplied)
	})
}

func (e *Engine) updateOwnedStream(
	ctx context.Context, doing, queue string, owner broker.QueueOwner, change func(*jetstream.StreamConfig),
) (err error) {
	defer func() { err = e.classifyError(doing+" the queue "+queue, err) }()
	stream, err := e.js.Stream(ctx, streamName(queue))
	if err != nil {
		return err
	}
	config := stream.CachedInfo().Config
	if err := broker.CheckOwner(queue, ownerFromMetadata(config.Metadata), owner); err != nil {
		return err
	}
	change(&config)
	_, err = e.js.UpdateStream(ctx, config)
	return err
}

// DeleteQueue implements broker.Engine. It deletes the stream with the owner last, so that an interrupted deletion can continue.
func (e *Engine) DeleteQueue(ctx context.Context, queue string, owner broker.QueueOwner) (err error) {
	defer func() { err = e.classifyError("deleting the queue "+queue, err) }()
	stream, err := e.js.Stream(ctx, streamName(queue))
	if isNotFound(err) {
		return nil
	}
	if err == nil {
		err = broker.CheckOwner(queue, ownerFromMetadata(stream.CachedInfo().Config.Metadata), owner)
	}
	if err != nil {
		return err
	}
	if err := e.js.DeleteKeyValue(ctx, bucketName(queue)); err != nil && !isNotFound(err) {
		return err
	}
	for _, name := range []string{jobsStreamName(queue), deadStreamName(queue), delayedStreamName(queue), streamName(queue)} {
		if err := e.js.DeleteStream(ctx, name); err != nil && !isNotFound(err) {
			return err
		}
	}
	return nil
}
