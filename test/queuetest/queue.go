// Package queuetest has queues on real brokers, for tests of those who use them.
package queuetest

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/dial"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/natstest"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

// PatientContext has a deadline, which replaces the short ones of requests that have none: a busy machine needs long.
func PatientContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// Connect connects to a broker until the test ends.
func Connect(t testing.TB, engine dial.EngineName, url string) broker.Engine {
	t.Helper()
	e, err := dial.Connect(PatientContext(t), engine, broker.Credentials{URL: url, Name: "test"})
	require.NoError(t, err)
	t.Cleanup(e.Disconnect)
	return e
}

// Ensure creates or updates a queue with the default configuration and changes, and returns its configuration.
func Ensure(t testing.TB, engine broker.Engine, name string, changes ...func(*broker.QueueConfig)) broker.QueueConfig {
	t.Helper()
	q := broker.DefaultQueueConfig(name)
	q.Owner = broker.QueueOwner{UID: "1", Name: "ns/" + name, Cluster: "c"}
	for _, change := range changes {
		change(&q)
	}
	_, err := engine.EnsureQueue(PatientContext(t), q)
	require.NoError(t, err)
	return q
}

// Stats returns the stats of a queue.
func Stats(t testing.TB, engine broker.Engine, name string) broker.QueueStats {
	t.Helper()
	stats, err := engine.Stats(PatientContext(t), name)
	require.NoError(t, err)
	return stats
}

// Left returns the number of messages in a queue. Dead letters do not count.
func Left(t testing.TB, engine broker.Engine, name string) int64 {
	t.Helper()
	stats := Stats(t, engine, name)
	return stats.Ready + stats.InFlight + stats.Delayed
}

// DeadLetters returns the dead letters of a queue.
func DeadLetters(t testing.TB, engine broker.Engine, name string) []broker.DeadLetter {
	t.Helper()
	letters, err := engine.DeadLetters(name).List(PatientContext(t), 0, 1000)
	require.NoError(t, err)
	return letters
}

// Consume returns a function that waits for the next message of a queue, and acknowledges it.
func Consume(t testing.TB, engine broker.Engine, name, priority string) (next func() *broker.Message) {
	t.Helper()
	subscription, err := engine.Subscribe(t.Context(), name)
	require.NoError(t, err)
	consumer, err := subscription.Consumer(t.Context(), priority)
	require.NoError(t, err)
	t.Cleanup(consumer.Stop)
	return func() (message *broker.Message) {
		t.Helper()
		poll.Until(t, "a message", func() bool {
			_, err := consumer.Next(t.Context(), time.Second, func(d broker.Delivery) {
				message = d.Message()
				go func() { _ = d.Ack(context.WithoutCancel(t.Context()), true) }()
			})
			require.NoError(t, err)
			return message != nil
		})
		return message
	}
}

// AssertSameJob compares messages without what the broker assigns, and without their IDs.
func AssertSameJob(t testing.TB, title string, want, got *broker.Message) {
	t.Helper()
	for _, message := range []*broker.Message{want, got} {
		message.ID, message.SentTime = "", time.Time{}
		delete(message.Headers, "Nats-Msg-Id")
	}
	assert.Equal(t, title+": the job of package client and this one", want, got)
}

// Queue is a queue on a NATS server of its own.
type Queue struct {
	*natstest.Server
	Engine broker.Engine

	t    testing.TB
	name string
	js   jetstream.JetStream
}

// Start runs a NATS server with a queue until the test ends.
func Start(t testing.TB, name string) *Queue {
	t.Helper()
	s := natstest.Start(t)
	q := &Queue{Server: s, Engine: Connect(t, dial.NATSEngine, s.ClientURL()), t: t, name: name, js: s.JetStream()}
	Ensure(t, q.Engine, name)
	return q
}

// Send sends a job with headers.
func (q *Queue) Send(payload string, headers nats.Header) {
	q.t.Helper()
	_, err := q.js.PublishMsg(q.t.Context(), &nats.Msg{Subject: "yardmaster." + q.name + ".ready.default", Header: headers, Data: []byte(payload)})
	require.NoError(q.t, err)
}

// Stats returns the stats of the queue.
func (q *Queue) Stats() broker.QueueStats {
	q.t.Helper()
	return Stats(q.t, q.Engine, q.name)
}

// IsEmpty reports whether the queue has no messages. Dead letters do not count.
func (q *Queue) IsEmpty() bool {
	q.t.Helper()
	return Left(q.t, q.Engine, q.name) == 0
}
