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
	"github.com/yardmaster/yardmaster/test/redistest"
	"github.com/yardmaster/yardmaster/test/require"
)

// patience bounds requests: a busy machine needs many times as long as an idle one.
const patience = 5 * time.Minute

// PatientContext has a deadline, which replaces the short ones of requests that have none.
func PatientContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
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

// Queue is a queue on a broker, and a client that sends jobs to it.
type Queue struct {
	Name, URL string
	Engine    broker.Engine
	Config    broker.QueueConfig
	// Server and JS are nil on other engines than NATS.
	Server *natstest.Server
	JS     jetstream.JetStream

	t testing.TB
}

// Start runs a NATS server with a queue until the test ends.
func Start(t testing.TB, name string, changes ...func(*broker.QueueConfig)) *Queue {
	t.Helper()
	return StartOn(t, natstest.Start(t), name, changes...)
}

// StartOn creates a queue on a NATS server.
func StartOn(t testing.TB, s *natstest.Server, name string, changes ...func(*broker.QueueConfig)) *Queue {
	t.Helper()
	q := &Queue{Name: name, URL: s.ClientURL(), Server: s, JS: s.JetStream(jetstream.WithPublishAsyncMaxPending(1000)), t: t}
	q.Engine = Connect(t, dial.NATSEngine, q.URL)
	q.Update(changes...)
	return q
}

// StartAsynqOn creates a queue of asynq on a Redis server.
func StartAsynqOn(t testing.TB, s *redistest.Server, name string, changes ...func(*broker.QueueConfig)) *Queue {
	t.Helper()
	q := &Queue{Name: name, URL: s.URL(), t: t}
	q.Engine = Connect(t, dial.AsynqEngine, q.URL)
	q.Update(changes...)
	return q
}

// Update creates or updates the queue with the default configuration and changes.
func (q *Queue) Update(changes ...func(*broker.QueueConfig)) {
	q.t.Helper()
	q.Config = Ensure(q.t, q.Engine, q.Name, changes...)
}

// Send sends jobs, on NATS.
func (q *Queue) Send(payloads ...string) {
	q.t.Helper()
	q.SendTo(q.Name, payloads...)
}

// SendTo sends jobs to another queue, on NATS.
func (q *Queue) SendTo(queue string, payloads ...string) {
	q.t.Helper()
	stallWait := jetstream.WithStallWait(patience) // parallel tests can slow the server down
	for _, payload := range payloads {
		_, err := q.JS.PublishAsync("yardmaster."+queue+".ready.default", []byte(payload), stallWait)
		require.NoError(q.t, err)
	}
	<-q.JS.PublishAsyncComplete()
}

// SendWithHeaders sends a job, on NATS.
func (q *Queue) SendWithHeaders(payload string, headers nats.Header) {
	q.t.Helper()
	_, err := q.JS.PublishMsg(q.t.Context(), &nats.Msg{Subject: "yardmaster." + q.Name + ".ready.default", Header: headers, Data: []byte(payload)})
	require.NoError(q.t, err)
}

// SendKind sends a job with a kind, on each engine.
func (q *Queue) SendKind(kind, payload string) {
	q.t.Helper()
	producer, _ := q.Engine.(broker.Producer)
	_, err := producer.Send(PatientContext(q.t), &broker.OutgoingJob{Queue: q.Name, Kind: kind, Payload: []byte(payload)})
	require.NoError(q.t, err)
}

// Stats returns the stats of the queue.
func (q *Queue) Stats() broker.QueueStats {
	q.t.Helper()
	stats, err := q.Engine.Stats(PatientContext(q.t), q.Name)
	require.NoError(q.t, err)
	return stats
}

// Left returns the number of messages in the queue. Dead letters do not count.
func (q *Queue) Left() int64 {
	q.t.Helper()
	stats := q.Stats()
	return stats.Ready + stats.InFlight + stats.Delayed
}

// IsEmpty reports whether the queue has no messages. Dead letters do not count.
func (q *Queue) IsEmpty() bool {
	q.t.Helper()
	return q.Left() == 0
}

// WaitUntilEmpty waits until the queue has no messages. Dead letters do not count.
func (q *Queue) WaitUntilEmpty() {
	q.t.Helper()
	poll.Until(q.t, "the queue to be empty", q.IsEmpty)
}

// DeadLetters returns the dead letters of the queue.
func (q *Queue) DeadLetters() []broker.DeadLetter {
	q.t.Helper()
	letters, err := q.Engine.DeadLetters(q.Name).List(PatientContext(q.t), 0, 1000)
	require.NoError(q.t, err)
	return letters
}
