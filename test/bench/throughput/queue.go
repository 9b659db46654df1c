package main

import (
	"context"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/jetstream"
	"github.com/yardmaster/yardmaster/test/bench/harness"
)

const (
	queueName    = "orders"
	priorityName = "default"
	streamName   = "yardmaster_" + queueName
	// waitTimeout bounds every wait.
	waitTimeout = 5 * time.Minute
)

// benchmarkQueue is a queue as the operator creates it.
type benchmarkQueue struct {
	*harness.Producer

	url       string
	serverPID int // process of the NATS server; 0 in subjects
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
	producer, err := harness.ConnectProducer(url, queueName)
	return &benchmarkQueue{url: url, Producer: producer}, err
}

// unacknowledgedCount returns the number of jobs that are not acknowledged.
func (q *benchmarkQueue) unacknowledgedCount(ctx context.Context) (uint64, error) {
	s, err := q.QueueStream(ctx)
	if err != nil {
		return 0, err
	}
	return s.CachedInfo().State.Msgs, nil
}
