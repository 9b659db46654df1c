package client

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/dial"
	"github.com/yardmaster/yardmaster/test/natstest"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/redistest"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/worker"
)

// testTimeout bounds the calls of tests: a busy machine needs many times as long as an idle one.
const testTimeout = 5 * time.Minute

// testEnv is a broker with the queue "orders", and a client of it.
type testEnv struct {
	*Client

	t       testing.TB
	options Options
	engine  dial.EngineName
	// admin creates queues, and receives what they have.
	admin broker.Engine
	// server of NATS; nil on other engines.
	server *natstest.Server
	// redis is nil on other engines than asynq.
	redis *redistest.Server
	// config is that of the queue "orders".
	config broker.QueueConfig
	// stop and restart the server.
	stop, restart func()
}

var owner = broker.QueueOwner{UID: "1", Name: "ns/orders", Cluster: "c"}

// engines start a broker of each engine.
var engines = map[dial.EngineName]func(testing.TB) *testEnv{
	dial.NATSEngine: func(t testing.TB) *testEnv {
		s := natstest.Start(t)
		return &testEnv{server: s, engine: dial.NATSEngine, options: Options{Broker: BrokerConfig{URL: "nats://" + s.Address()}}, stop: s.Stop, restart: s.Restart}
	},
	dial.AsynqEngine: func(t testing.TB) *testEnv {
		s := redistest.Start(t)
		return &testEnv{redis: s, engine: dial.AsynqEngine, options: Options{Broker: BrokerConfig{URL: s.URL()}}, stop: s.Stop, restart: s.Restart}
	},
}

// onEachEngine runs a test with a broker of each engine.
func onEachEngine(t *testing.T, test func(*testing.T, *testEnv), changes ...func(*broker.QueueConfig)) {
	t.Parallel()
	for name := range engines {
		t.Run(string(name), func(t *testing.T) {
			t.Parallel()
			test(t, newTestEnv(t, name, changes...))
		})
	}
}

func newTestEnv(t testing.TB, engine dial.EngineName, changes ...func(*broker.QueueConfig)) *testEnv {
	t.Helper()
	env := engines[engine](t)
	env.t, env.options.Timeout = t, testTimeout
	env.connectAdmin(env.options.Broker.URL)
	env.ensureQueue("orders", changes...)
	env.Client = env.connect(env.options)
	return env
}

func (env *testEnv) connectAdmin(url string) {
	env.t.Helper()
	var err error
	env.admin, err = dial.Connect(env.t.Context(), env.engine, broker.Credentials{URL: url, Name: "test"})
	require.NoError(env.t, err)
	env.t.Cleanup(env.admin.Disconnect)
}

func (env *testEnv) connect(options Options) *Client {
	env.t.Helper()
	c, err := New(env.t.Context(), options)
	require.NoError(env.t, err)
	env.t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

func (env *testEnv) ensureQueue(name string, changes ...func(*broker.QueueConfig)) {
	env.t.Helper()
	q := broker.DefaultQueueConfig(name)
	q.Owner = owner
	for _, change := range changes {
		change(&q)
	}
	env.config = q
	_, err := env.admin.EnsureQueue(env.t.Context(), q)
	require.NoError(env.t, err)
}

// enqueue sends a job to the queue "orders".
func (env *testEnv) enqueue(payload string, options ...Option) Receipt {
	env.t.Helper()
	receipt, err := env.Enqueue(env.t.Context(), "orders", []byte(payload), options...)
	require.NoError(env.t, err)
	return receipt
}

// consume returns a function that receives and acknowledges the next message of the queue "orders", which the test
// waits for.
func (env *testEnv) consume(priority string) (next func() *broker.Message) {
	env.t.Helper()
	subscription, err := env.admin.Subscribe(env.t.Context(), "orders")
	require.NoError(env.t, err)
	consumer, err := subscription.Consumer(env.t.Context(), priority)
	require.NoError(env.t, err)
	env.t.Cleanup(consumer.Stop)
	return func() *broker.Message {
		env.t.Helper()
		var message *broker.Message
		poll.Until(env.t, "a message", func() bool {
			_, err := consumer.Next(env.t.Context(), time.Second, func(d broker.Delivery) {
				message = d.Message()
				go func() { _ = d.Ack(context.Background(), true) }()
			})
			require.NoError(env.t, err)
			return message != nil
		})
		return message
	}
}

// stats of the queue "orders".
func (env *testEnv) stats() broker.QueueStats {
	env.t.Helper()
	stats, err := env.admin.Stats(env.t.Context(), "orders")
	require.NoError(env.t, err)
	return stats
}

// requireError fails the test unless err is an *Error with that reason and field.
func requireError(t testing.TB, err, reason error, field string) {
	t.Helper()
	failure := (*Error)(nil)
	if !errors.As(err, &failure) || !errors.Is(err, reason) || !errors.Is(failure.Reason, reason) || failure.Field != field {
		t.Errorf("error %v (%+v), want %v of the field %q", err, failure, reason, field)
	}
}

// runWorker runs a worker of the queue "orders" until the test ends.
func (env *testEnv) runWorker(mux *worker.Mux, changes ...func(*worker.QueueConfig)) {
	env.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := env.startWorker(ctx, mux, changes...)
	env.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			env.t.Error(err)
		}
	})
}

// startWorker runs a worker until ctx ends. The channel receives what it returns.
func (env *testEnv) startWorker(ctx context.Context, mux *worker.Mux, changes ...func(*worker.QueueConfig)) <-chan error {
	env.t.Helper()
	q := worker.QueueConfig{Name: "orders"}
	if env.config.Results.IsEnabled() {
		q.Results = &worker.ResultsConfig{Retention: worker.Duration(env.config.Results.Retention)}
		q.Retry = &worker.RetryPolicy{MaxAttempts: &env.config.Retry.MaxAttempts, InitialDelay: new(worker.Duration(env.config.Retry.InitialDelay)), JitterPercent: new(0)}
	}
	for _, change := range changes {
		change(&q)
	}
	w, err := mux.NewWorker(worker.Options{
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Config: worker.Config{Broker: worker.BrokerConfig{URL: env.options.Broker.URL}, Queues: []worker.QueueConfig{q}, AdminAddress: "0"},
	})
	require.NoError(env.t, err)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	return ended
}
