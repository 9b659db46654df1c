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
	queueName      = "orders"
	priorityName   = "default"
	streamName     = "yardmaster_" + queueName
	publishSubject = "yardmaster." + queueName + ".ready." + priorityName
	// waitTimeout bounds every wait.
	waitTimeout = 5 * time.Minute
)

// benchmarkQueue is a queue as the operator creates it.
type benchmarkQueue struct {
	url       string
	serverPID int // process of the NATS server; 0 in subjects
	nc        *nats.Conn
	js        natsjs.JetStream
}

func createQueue(ctx context.Context, url string, server int) (*benchmarkQueue, error) {
	engine, err := jetstream.Connect(ctx, broker.Credentials{URL: url, Name: "bench"})
	if err != nil {
		return nil, err
	}
	defer engine.Disconnect()
	config := broker.DefaultQueueConfig(queueName)
	config.Owner = broker.QueueOwner{UID: "1", Name: "bench/" + queueName}
	if _, err := engine.EnsureQueue(ctx, config); err != nil {
		return nil, err
	}
	q, err := connectToQueue(url)
	if err != nil {
		return nil, err
	}
	q.serverPID = server
	return q, nil
}

// connectToQueue connects to an existing queue.
func connectToQueue(url string) (*benchmarkQueue, error) {
	nc, err := nats.Connect(url)
	if err != nil {
		return nil, err
	}
	js, err := natsjs.New(nc, natsjs.WithPublishAsyncMaxPending(1000))
	if err != nil {
		nc.Close()
		return nil, err
	}
	return &benchmarkQueue{url: url, nc: nc, js: js}, nil
}

func (q *benchmarkQueue) closeConnection() { q.nc.Close() }

// publishBacklog publishes jobs without payload and waits until the broker has stored them.
func (q *benchmarkQueue) publishBacklog(ctx context.Context, jobs int) error {
	for range jobs {
		if _, err := q.js.PublishAsync(publishSubject, nil, natsjs.WithStallWait(waitTimeout)); err != nil {
			return err
		}
	}
	select {
	case <-q.js.PublishAsyncComplete():
		return nil
	case <-time.After(waitTimeout):
		return errors.New("timed out waiting until the broker has stored the jobs")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// unacknowledgedCount returns the number of jobs that are not acknowledged.
func (q *benchmarkQueue) unacknowledgedCount(ctx context.Context) (uint64, error) {
	s, err := q.js.Stream(ctx, streamName)
	if err != nil {
		return 0, err
	}
	return s.CachedInfo().State.Msgs, nil
}
