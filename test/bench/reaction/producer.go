package main

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const subject = "yardmaster." + measured + ".ready.default"

// producer sends to the queue that is measured. It knows the broker, and not the operator.
type producer struct {
	nc *nats.Conn
	js jetstream.JetStream
}

func newProducer(url string) (*producer, error) {
	nc, err := nats.Connect(url)
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(1000))
	if err != nil {
		nc.Close()
		return nil, err
	}
	return &producer{nc, js}, nil
}

func (p *producer) close() { p.nc.Close() }

// burst publishes so many messages, and waits until the broker has them all.
func (p *producer) burst(ctx context.Context, messages int) error {
	for range messages {
		if _, err := p.js.PublishAsync(subject, nil, jetstream.WithStallWait(patience)); err != nil {
			return err
		}
	}
	select {
	case <-p.js.PublishAsyncComplete():
		return nil
	case <-time.After(patience):
		return errors.New("the broker does not take the messages")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// purge takes all messages away, as an admin of the broker would.
func (p *producer) purge(ctx context.Context) error {
	stream, err := p.js.Stream(ctx, "yardmaster_"+measured)
	if err != nil {
		return err
	}
	return stream.Purge(ctx)
}
