package client

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/dial"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/worker"
)

func TestAWorkerHandlesWhatTheClientSendsAndTheIDSurvivesRequeueing(t *testing.T) {
	for _, engine := range []dial.EngineName{dial.NATSEngine, dial.AsynqEngine} {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			env := newTestEnv(t, engine)
			var sent []string
			for number, options := range [][]Option{{ID("order-1")}, {ID("order.2"), Delay(time.Second)}, nil} {
				receipt, err := Enqueue(t.Context(), env.Client, "orders", invoice{number}, append(options, Header("Tenant", "a"))...)
				require.NoError(t, err)
				sent = append(sent, fmt.Sprintf("%s %d a", receipt.ID, number))
			}
			handled := make(chan string, 10)
			var isGood atomic.Bool
			mux := worker.NewMux()
			worker.Handle(mux, "invoice", func(_ context.Context, job *worker.Job, args invoice) error {
				handled <- fmt.Sprintf("%s %d %s", job.ID, args.Number, job.Headers["Tenant"][0])
				if !isGood.Load() {
					return worker.DeadLetter("bad")
				}
				return nil
			}, worker.WithConcurrency(1))
			env.runWorker(mux)
			receive := func(when string) {
				t.Helper()
				got := map[string]bool{}
				for range sent {
					got[<-handled] = true
				}
				for _, want := range sent {
					if !got[want] {
						t.Errorf("%s: handled %v, want %s", when, got, want)
					}
				}
			}
			receive("at first")
			poll.Until(t, "all jobs to be dead letters", func() bool { return env.stats().DeadLetters == int64(len(sent)) })
			isGood.Store(true)
			if number, err := env.admin.DeadLetters("orders").Requeue(t.Context(), broker.RequeueOptions{}); number != len(sent) || err != nil {
				t.Fatalf("requeued %d: %v", number, err)
			}
			receive("after requeueing")
		})
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
