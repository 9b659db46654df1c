package jetstream

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// source is a queue as its workers see it.
type source struct {
	*Engine
	queue  string
	stream jetstream.Stream
	bucket jetstream.KeyValue
}

// Source is where a worker gets the queue's messages from.
func (e *Engine) Source(ctx context.Context, queue string) (broker.Source, error) {
	doing := "looking for the queue " + queue
	stream, err := e.js.Stream(ctx, streamOf(queue))
	if err != nil {
		return nil, e.classify(doing, err)
	}
	bucket, err := e.bucket(ctx, queue)
	if err != nil {
		return nil, e.classify(doing, err)
	}
	return &source{e, queue, stream, bucket}, nil
}

// Lane leads to the messages of one priority.
func (s *source) Lane(ctx context.Context, priority string) (broker.Lane, error) {
	consumer, err := s.stream.Consumer(ctx, priority)
	if err != nil {
		return nil, s.classify("looking for the priority "+priority+" of the queue "+s.queue, err)
	}
	return &lane{s, priority, consumer}, nil
}

// lane is one priority of a queue.
type lane struct {
	*source
	priority string
	consumer jetstream.Consumer
}

// Take hands out at most number messages that are ready now.
func (l *lane) Take(ctx context.Context, number int, receive func(broker.Delivery)) (int, error) {
	batch, err := l.consumer.FetchNoWait(number)
	if err != nil {
		return 0, l.failed(err)
	}
	return l.hand(ctx, batch, receive)
}

// Await waits up to that long for one message. It asks for no more than one: a second
// might come when there is no use for it any more.
func (l *lane) Await(ctx context.Context, wait time.Duration, receive func(broker.Delivery)) (int, error) {
	batch, err := l.consumer.Fetch(1, jetstream.FetchMaxWait(wait))
	if err != nil {
		return 0, l.failed(err)
	}
	return l.hand(ctx, batch, receive)
}

// hand hands out what a request brings, to its end: a message that came when nobody
// listened any more would be nobody's until its lease is over.
func (l *lane) hand(ctx context.Context, batch jetstream.MessageBatch, receive func(broker.Delivery)) (int, error) {
	n := 0
	for message := range batch.Messages() {
		facts, err := message.Metadata()
		if err != nil {
			return n, l.failed(err)
		}
		receive(&delivery{l, message, facts})
		n++
	}
	if err := batch.Error(); err != nil && ctx.Err() == nil {
		return n, l.failed(err)
	}
	return n, nil
}

func (l *lane) failed(err error) error {
	return l.classify("fetching from the queue "+l.queue+", priority "+l.priority, err)
}
