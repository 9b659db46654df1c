package jetstream

import (
	"context"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// Stats implements broker.Engine. It needs three requests, and one more per priority to find
// the oldest ready message.
func (e *Engine) Stats(ctx context.Context, queue string) (broker.QueueStats, error) {
	stats, err := e.readStats(ctx, queue)
	return stats, e.classifyError("reading the stats of the queue "+queue, err)
}

func (e *Engine) readStats(ctx context.Context, queue string) (broker.QueueStats, error) {
	// Read the stream before the consumers: a message acknowledged in between counts as delayed
	// for a moment, and is not missing.
	stream, err := e.js.Stream(ctx, streamName(queue))
	if err != nil {
		return broker.QueueStats{}, err
	}
	infos, err := listConsumers(ctx, stream)
	if err != nil {
		return broker.QueueStats{}, err
	}
	info := stream.CachedInfo()
	f := broker.QueueStats{TotalArrivals: info.State.LastSeq, MeasuredTime: info.TimeStamp}
	for _, consumer := range infos {
		f.Ready += int64(consumer.NumPending) //nolint:gosec // counts of messages
		f.InFlight += int64(consumer.NumAckPending)
	}
	f.Delayed = max(0, int64(info.State.Msgs)-f.Ready-f.InFlight) //nolint:gosec // counts of messages
	if err := readOldestReadyTime(ctx, stream, infos, &f); err != nil {
		return broker.QueueStats{}, err
	}
	dead, err := e.js.Stream(ctx, deadStreamName(queue))
	if err != nil {
		return broker.QueueStats{}, err
	}
	f.DeadLetters = int64(dead.CachedInfo().State.Msgs) //nolint:gosec // counts of messages
	return f, nil
}

// readOldestReadyTime reads when the oldest ready message was sent, if the state of the
// stream does not contain it.
//
// A consumer registers a message shortly after the stream has stored and announced it. In
// between, the message appears delayed. It is found here; otherwise a pool that was
// activated for it would scale down again.
func readOldestReadyTime(ctx context.Context, stream jetstream.Stream, infos map[string]*jetstream.ConsumerInfo, f *broker.QueueStats) error {
	if f.Ready > 0 && f.InFlight == 0 && f.Delayed == 0 {
		f.OldestReadyTime = stream.CachedInfo().State.FirstTime
		return nil
	}
	unnoticed := f.Ready == 0
	if unnoticed && f.Delayed == 0 {
		return nil
	}
	for _, info := range infos {
		if info.NumPending == 0 && !unnoticed {
			continue
		}
		message, err := stream.GetMsg(ctx, info.Delivered.Stream+1, jetstream.WithGetMsgSubject(info.Config.FilterSubject))
		if isNotFound(err) {
			continue // another client received it, or none exists
		}
		if err != nil {
			return err
		}
		if unnoticed && f.Delayed > 0 {
			f.Ready, f.Delayed = f.Ready+1, f.Delayed-1
		}
		if f.OldestReadyTime.IsZero() || message.Time.Before(f.OldestReadyTime) {
			f.OldestReadyTime = message.Time
		}
	}
	return nil
}

// WaitForMessage implements broker.Engine. It subscribes before it checks the queue, so that
// it misses no message, and checks again after each reconnect.
func (e *Engine) WaitForMessage(ctx context.Context, queue string) error {
	arrived := make(chan *nats.Msg, 1)
	subscription, err := e.nc.ChanSubscribe(arrivedSubject(queue, "*"), arrived)
	if err != nil {
		return e.classifyError("subscribing to the queue "+queue, err)
	}
	defer func() { _ = subscription.Unsubscribe() }()
	back := e.nc.StatusChanged(nats.CONNECTED)
	defer e.nc.RemoveStatusListener(back)
	for {
		if ready, err := e.hasReadyMessages(ctx, queue); err != nil || ready {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-arrived:
			return nil
		case <-back:
		}
	}
}

func (e *Engine) hasReadyMessages(ctx context.Context, queue string) (bool, error) {
	// Flush, so that the server has the subscription before the check.
	soon, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if err := e.nc.FlushWithContext(soon); err != nil {
		return false, e.classifyError("subscribing to the queue "+queue, err)
	}
	stats, err := e.Stats(ctx, queue)
	return stats.Ready > 0, err
}
