package worker

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/queuetest"
	"github.com/yardmaster/yardmaster/test/require"
)

// testTimeout bounds what ends within a second on an idle machine.
const testTimeout = 5 * time.Minute

// testEnv is a broker with the queue "orders", and workers of it.
type testEnv struct {
	*queuetest.Queue

	t testing.TB
}

func newTestEnv(t testing.TB, changes ...func(*broker.QueueConfig)) *testEnv {
	t.Helper()
	return &testEnv{queuetest.Start(t, "orders", changes...), t}
}

// newUnreachableEnv returns a broker that does not run.
func newUnreachableEnv(t testing.TB) *testEnv {
	return &testEnv{&queuetest.Queue{Name: "orders", URL: "nats://127.0.0.1:1"}, t}
}

// numberedPayloads returns the payloads "0", "1" and so on.
func numberedPayloads(count int) []string {
	payloads := make([]string, count)
	for i := range payloads {
		payloads[i] = fmt.Sprint(i)
	}
	return payloads
}

func (env *testEnv) deadLetterErrors() (texts []string) {
	env.t.Helper()
	for _, letter := range env.DeadLetters() {
		texts = append(texts, letter.Error)
	}
	slices.Sort(texts)
	return texts
}

// purge removes all messages of the queue "orders".
func (env *testEnv) purge() {
	stream, err := env.JS.Stream(env.t.Context(), "yardmaster_orders")
	if err == nil {
		err = stream.Purge(env.t.Context())
	}
	if err != nil {
		env.t.Error(err)
	}
}

func (env *testEnv) config(changes ...func(*Config)) Config {
	c := Config{Broker: BrokerConfig{URL: env.URL}, Queues: []QueueConfig{{Name: env.Name}}, AdminAddress: "0"}
	for _, change := range changes {
		change(&c)
	}
	return c
}

// withFastRetries retries after milliseconds, with 3 attempts.
func withFastRetries(c *Config) {
	c.Queues[0].Retry = &RetryPolicy{MaxAttempts: new(3), InitialDelay: new(Duration(time.Millisecond)), MaxDelay: new(Duration(10 * time.Millisecond))}
}

// runningWorker is a worker whose Run was called.
type runningWorker struct {
	*Worker
	// shutDownNow cancels the context of Run, and result receives what Run returns.
	shutDownNow context.CancelFunc
	result      chan error
}

func (env *testEnv) start(c Config, handler Handler) *runningWorker {
	env.t.Helper()
	return env.startWithOptions(Options{Config: c}, handler)
}

func (env *testEnv) startWithOptions(o Options, handler Handler) *runningWorker {
	env.t.Helper()
	return env.run(env.newWorker(o, handler))
}

func (env *testEnv) newWorker(o Options, handler Handler) *Worker {
	env.t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	w := require.Call(New(o, handler)).Succeeds(env.t)
	w.adminShutdownTimeout = testTimeout
	return w
}

func (env *testEnv) run(w *Worker) *runningWorker {
	ctx, cancel := context.WithCancel(context.Background())
	running := &runningWorker{w, cancel, make(chan error, 1)}
	go func() { running.result <- w.Run(ctx) }()
	env.t.Cleanup(cancel)
	return running
}

func (w *runningWorker) shutDownAndWait(t testing.TB) error {
	t.Helper()
	w.shutDownNow()
	poll.Until(t, "the worker to shut down", func() bool { return len(w.result) > 0 })
	return <-w.result
}

// requireCleanShutdown shuts the workers down and fails the test if Run returns an error.
func requireCleanShutdown(t testing.TB, workers ...*runningWorker) {
	t.Helper()
	for _, w := range workers {
		err := w.shutDownAndWait(t)
		require.True(t, err == nil, "Run returned: %v", err)
	}
}

// jobLog records jobs in the order in which they started.
type jobLog struct {
	mu   sync.Mutex
	jobs []Job
}

func (l *jobLog) add(job *Job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.jobs = append(l.jobs, *job)
}

func (l *jobLog) handle(_ context.Context, job *Job) error {
	l.add(job)
	return nil
}

func (l *jobLog) all() []Job {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.jobs)
}

func (l *jobLog) count() int { return len(l.all()) }

// countedMessages returns the value of yardmaster_worker_jobs_total for a result.
func (w *Worker) countedMessages(result string) int {
	return int(testutil.ToFloat64(w.metrics.messages.WithLabelValues("orders", result)))
}
