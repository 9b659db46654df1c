package client

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/dial"
	"github.com/yardmaster/yardmaster/test/background"
	"github.com/yardmaster/yardmaster/test/natstest"
	"github.com/yardmaster/yardmaster/test/queuetest"
	"github.com/yardmaster/yardmaster/test/redistest"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/worker"
)

// testTimeout bounds the calls of tests: a busy machine needs many times as long as an idle one.
const testTimeout = 5 * time.Minute

// testEnv is a broker with the queue "orders", and a client of it.
type testEnv struct {
	*Client
	*queuetest.Queue

	t       testing.TB
	options Options
	engine  dial.EngineName
	// redis is nil on other engines than asynq.
	redis *redistest.Server
	// stop and restart the server.
	stop, restart func()
}

func onEachEngine(t *testing.T, test func(*testing.T, *testEnv), changes ...func(*broker.QueueConfig)) {
	t.Parallel()
	for _, name := range []dial.EngineName{dial.NATSEngine, dial.AsynqEngine} {
		t.Run(string(name), func(t *testing.T) {
			t.Parallel()
			test(t, newTestEnv(t, name, changes...))
		})
	}
}

func newTestEnv(t testing.TB, engine dial.EngineName, changes ...func(*broker.QueueConfig)) *testEnv {
	t.Helper()
	env := &testEnv{t: t, engine: engine}
	if engine == dial.NATSEngine {
		s := natstest.Start(t)
		env.Queue, env.stop, env.restart = queuetest.StartOn(t, s, "orders", changes...), s.Stop, s.Restart
	} else {
		env.redis = redistest.Start(t)
		env.Queue, env.stop, env.restart = queuetest.StartAsynqOn(t, env.redis, "orders", changes...), env.redis.Stop, env.redis.Restart
	}
	env.options = Options{Broker: BrokerConfig{URL: env.URL}, Timeout: testTimeout}
	env.Client = env.connect(env.options)
	return env
}

func (env *testEnv) connect(options Options) *Client {
	env.t.Helper()
	c := require.Call(New(env.t.Context(), options)).Succeeds(env.t)
	env.t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// createDraining creates a queue that rejects jobs.
func (env *testEnv) createDraining(name string) {
	env.t.Helper()
	q := queuetest.Ensure(env.t, env.Engine, name)
	require.NoError(env.t, env.Engine.RejectNewMessages(env.t.Context(), name, q.Owner))
}

// enqueue sends a job to the queue "orders".
func (env *testEnv) enqueue(payload string, options ...Option) Receipt {
	env.t.Helper()
	return require.Call(env.Enqueue(env.t.Context(), "orders", []byte(payload), options...)).Succeeds(env.t)
}

// consume returns a function that waits for the next message of the queue "orders", and acknowledges it.
func (env *testEnv) consume(priority string) (next func() *broker.Message) {
	env.t.Helper()
	return queuetest.Consume(env.t, env.Engine, "orders", priority)
}

// requireError fails the test unless err is an *Error with that reason and field.
func requireError(t testing.TB, err, reason error, field string) {
	t.Helper()
	failure := (*Error)(nil)
	isRight := errors.As(err, &failure) && errors.Is(err, reason) && errors.Is(failure.Reason, reason) && failure.Field == field
	require.True(t, isRight, "error %v (%+v), want %v of the field %q", err, failure, reason, field)
}

// runWorker runs a worker of the queue "orders" until stop is called, or the test ends.
func (env *testEnv) runWorker(mux *worker.Mux, changes ...func(*worker.QueueConfig)) (stop func()) {
	env.t.Helper()
	q := worker.QueueConfig{Name: "orders"}
	if env.Config.Results.IsEnabled() {
		q.Results = &worker.ResultsConfig{Retention: worker.Duration(env.Config.Results.Retention)}
		q.Retry = &worker.RetryPolicy{MaxAttempts: &env.Config.Retry.MaxAttempts, InitialDelay: new(worker.Duration(env.Config.Retry.InitialDelay)), JitterPercent: new(0)}
	}
	for _, change := range changes {
		change(&q)
	}
	w := require.Call(mux.NewWorker(worker.Options{
		Logger: slog.New(slog.DiscardHandler),
		Config: worker.Config{Broker: worker.BrokerConfig{URL: env.URL}, Queues: []worker.QueueConfig{q}, AdminAddress: "0"},
	})).Succeeds(env.t)
	return background.Run(env.t, w.Run)
}
