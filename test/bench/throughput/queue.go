package main

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/jetstream"
)

const (
	name     = "orders"
	priority = "default"
	stream   = "yardmaster_" + name
	subject  = "yardmaster." + name + ".ready." + priority
	// patience with whatever is waited for.
	patience = 5 * time.Minute
)

// queue is that whose backlog is worked off, as the operator makes it.
type queue struct {
	url    string
	server int // the server's process, where that is measured
	nc     *nats.Conn
	js     natsjs.JetStream
}

func openQueue(ctx context.Context, url string, server int) (*queue, error) {
	engine, err := jetstream.Connect(ctx, broker.Credentials{URL: url, Name: "bench"})
	if err != nil {
		return nil, err
	}
	defer engine.Disconnect()
	wanted := broker.DefaultQueueConfig(name)
	wanted.Owner = broker.QueueOwner{UID: "1", Name: "bench/" + name}
	if _, err := engine.EnsureQueue(ctx, wanted); err != nil {
		return nil, err
	}
	q, err := findQueue(url)
	if err != nil {
		return nil, err
	}
	q.server = server
	return q, nil
}

// findQueue connects to a queue that is there.
func findQueue(url string) (*queue, error) {
	nc, err := nats.Connect(url)
	if err != nil {
		return nil, err
	}
	js, err := natsjs.New(nc, natsjs.WithPublishAsyncMaxPending(1000))
	if err != nil {
		nc.Close()
		return nil, err
	}
	return &queue{url: url, nc: nc, js: js}, nil
}

func (q *queue) close() { q.nc.Close() }

// fill makes a backlog.
func (q *queue) fill(ctx context.Context, jobs int) error {
	for range jobs {
		if _, err := q.js.PublishAsync(subject, nil, natsjs.WithStallWait(patience)); err != nil {
			return err
		}
	}
	select {
	case <-q.js.PublishAsyncComplete():
		return nil
	case <-time.After(patience):
		return errors.New("the broker does not take the jobs")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// left is how many jobs are not acknowledged.
func (q *queue) left(ctx context.Context) (uint64, error) {
	s, err := q.js.Stream(ctx, stream)
	if err != nil {
		return 0, err
	}
	return s.CachedInfo().State.Msgs, nil
}
