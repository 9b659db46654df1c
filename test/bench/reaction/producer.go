package main

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const publishSubject = "yardmaster." + measuredQueue + ".ready.default"

// queueProducer publishes messages to the measured queue.
type queueProducer struct {
	nc *nats.Conn
	js jetstream.JetStream
}

func connectProducer(url string) (*queueProducer, error) {
	nc, err := nats.Connect(url)
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(1000))
	if err != nil {
		nc.Close()
		return nil, err
	}
	return &queueProducer{nc, js}, nil
}

func (p *queueProducer) closeConnection() { p.nc.Close() }

// publishBurst publishes the given number of messages, and waits until the broker has stored
// all of them.
func (p *queueProducer) publishBurst(ctx context.Context, messages int) error {
	for range messages {
		if _, err := p.js.PublishAsync(publishSubject, nil, jetstream.WithStallWait(waitTimeout)); err != nil {
			return err
		}
	}
	select {
	case <-p.js.PublishAsyncComplete():
		return nil
	case <-time.After(waitTimeout):
		return errors.New("timed out waiting until the broker has stored the messages")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// purgeQueue removes all messages from the queue.
func (p *queueProducer) purgeQueue(ctx context.Context) error {
	stream, err := p.js.Stream(ctx, "yardmaster_"+measuredQueue)
	if err != nil {
		return err
	}
	return stream.Purge(ctx)
}
