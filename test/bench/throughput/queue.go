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
	// resultsRetention of a queue that keeps the states of jobs.
	resultsRetention = 10 * time.Minute
)

// benchmarkQueue is a queue as the operator creates it.
type benchmarkQueue struct {
	*harness.Producer

	url       string
	serverPID int // process of the NATS server; 0 in subjects
	// worker is the role of the measured worker.
	worker string
}

func createQueue(ctx context.Context, url string, server int, keepsResults bool) (*benchmarkQueue, error) {
	engine, err := jetstream.Connect(ctx, broker.Credentials{URL: url, Name: "bench"})
	if err != nil {
		return nil, err
	}
	defer engine.Disconnect()
	config := broker.DefaultQueueConfig(queueName)
	config.Owner = broker.QueueOwner{UID: "1", Name: "bench/" + queueName}
	if keepsResults {
		config.Results = broker.ResultsConfig{Retention: resultsRetention, MaxBytes: broker.DefaultResultsBytes}
	}
	if _, err := engine.EnsureQueue(ctx, config); err != nil {
		return nil, err
	}
	q, err := connectToQueue(url)
	if err != nil {
		return nil, err
	}
	q.serverPID, q.worker = server, workerSubject
	if keepsResults {
		q.worker = workerWithResultsSubject
	}
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
