package jetstream

import (
	"context"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// Stats are how much there is to do: two requests, one more about dead letters, and
// one for each priority that has messages beside others in flight or delayed, or for all
// of them if there are only delayed ones.
func (e *Engine) Stats(ctx context.Context, queue string) (broker.QueueStats, error) {
	figures, err := e.readStats(ctx, queue)
	return figures, e.classifyError("asking for the figures of the queue "+queue, err)
}

func (e *Engine) readStats(ctx context.Context, queue string) (broker.QueueStats, error) {
	// The messages first: one that is done in between counts as delayed for a moment,
	// not as missing from what there is to do.
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

// readOldestReadyTime finds out when the oldest message that is ready was sent, where the stream alone
// does not tell.
//
// A consumer takes note of a message a moment after the stream has it and has told of it.
// A message that looks delayed to who comes in between is found here: else a pool that was
// woken for it would go back to sleep.
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
			continue // taken meanwhile, or none
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

// WaitForMessage returns as soon as the queue has a message for workers, or ctx ends. It listens
// first and then looks, so that no message comes unnoticed in between; and it looks again
// each time the connection is back.
func (e *Engine) WaitForMessage(ctx context.Context, queue string) error {
	arrived := make(chan *nats.Msg, 1)
	subscription, err := e.nc.ChanSubscribe(arrivedSubject(queue, "*"), arrived)
	if err != nil {
		return e.classifyError("listening at the queue "+queue, err)
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
	// The server has the subscription before it is asked.
	soon, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if err := e.nc.FlushWithContext(soon); err != nil {
		return false, e.classifyError("listening at the queue "+queue, err)
	}
	figures, err := e.Stats(ctx, queue)
	return figures.Ready > 0, err
}
