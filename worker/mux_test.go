package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/queuetest"
	"github.com/yardmaster/yardmaster/test/redistest"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/worker/internal/scheduler"
)

// onBothEngines runs a test on NATS and on asynq.
func onBothEngines(t *testing.T, test func(t *testing.T, env *testEnv)) {
	t.Helper()
	t.Parallel()
	t.Run("NATS", func(t *testing.T) {
		t.Parallel()
		test(t, newTestEnv(t))
	})
	t.Run("asynq", func(t *testing.T) {
		t.Parallel()
		test(t, &testEnv{queuetest.StartAsynqOn(t, redistest.Start(t), "orders"), t})
	})
}

func (env *testEnv) startMux(mux *Mux, changes ...func(*Config)) *runningWorker {
	env.t.Helper()
	w := require.Call(mux.NewWorker(Options{Config: env.config(changes...), Logger: slog.New(slog.DiscardHandler)})).Succeeds(env.t)
	w.adminShutdownTimeout = testTimeout
	return env.run(w)
}

type order struct {
	Number int `json:"number"`
}

func succeed(context.Context, *Job, order) error { return nil }

func TestAJobIsHandledByItsKindOrBecomesADeadLetter(t *testing.T) {
	onBothEngines(t, func(t *testing.T, env *testEnv) {
		var mu sync.Mutex
		var got []string
		record := func(what string) func(context.Context, *Job, order) error {
			return func(_ context.Context, job *Job, args order) error {
				mu.Lock()
				defer mu.Unlock()
				got = append(got, fmt.Sprintf("%s %s %d", what, job.Kind, args.Number))
				return nil
			}
		}
		mux := NewMux()
		Handle(mux, "bill", record("billed"))
		Handle(mux, "ship", record("shipped"))
		env.SendKind("bill", `{"number": 1}`)
		env.SendKind("ship", `{"number": 2, "unknown": true}`)
		env.SendKind("bill", `{"number": "one"}`)
		env.SendKind("other", "{}")
		w := env.startMux(mux, func(c *Config) { c.Queues[0].Retry = &RetryPolicy{MaxAttempts: new(1)} })
		env.WaitUntilEmpty()
		requireCleanShutdown(t, w)
		slices.Sort(got)
		require.Equal(t, []string{"billed bill 1", "shipped ship 2"}, got)
		reasons := env.deadLetterErrors()
		require.Equal(t, 2, len(reasons))
		require.Contains(t, reasons[0], `the payload is invalid for the kind "bill": json: `)
		require.Equal(t, `the worker has no handler for the kind "other"`, reasons[1])
	})
}

func TestADecoderReplacesJSON(t *testing.T) {
	mux, got := NewMux(), ""
	upper := func(payload []byte, target any) error {
		if *target.(*string) = strings.ToUpper(string(payload)); len(payload) == 0 {
			return errors.New("empty")
		}
		return nil
	}
	Handle(mux, "shout", func(_ context.Context, _ *Job, text string) error {
		got = text
		return nil
	}, WithDecoder(upper))
	err := mux.HandleJob(t.Context(), &Job{Kind: "shout", Payload: []byte("abc")})
	require.True(t, err == nil && got == "ABC", "decoded %q: %v", got, err)
	err = mux.HandleJob(t.Context(), &Job{Kind: "shout"})
	require.True(t, IsDeadLetter(err) && err.Error() == `the payload is invalid for the kind "shout": empty`, "an invalid payload caused: %v", err)
}

func TestAJobOfAnUnknownKindWaitsForAWorkerThatHasItsHandler(t *testing.T) {
	for initial, want := range map[time.Duration]time.Duration{time.Second: time.Minute, time.Hour: time.Hour} {
		policy := broker.RetryPolicy{InitialDelay: initial, MaxDelay: time.Hour, MultiplierPercent: 200}
		require.Equal(t, want, retryDelay(&Job{Attempt: 1, retry: policy}, &unknownKindError{"ship"}))
	}
	require.Equal(t, scheduler.OutcomeUnknown, jobOutcome(&unknownKindError{"ship"})) // says nothing about what jobs depend on
}

func TestAJobOfAnUnknownKindIsNotDroppedByAQueueWithoutDeadLetters(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	mux := NewMux()
	Handle(mux, "bill", succeed)
	env.SendKind("ship", "{}")
	w := env.startMux(mux, func(c *Config) {
		c.Queues[0].Retry, c.Queues[0].DeadLetter = &RetryPolicy{MaxAttempts: new(1)}, &DeadLetterPolicy{Enabled: new(false)}
	})
	poll.Until(t, "the job to be given back", func() bool { return w.countedMessages(resultSnoozed) == 1 })
	requireCleanShutdown(t, w)
	stats := env.Stats()
	require.True(t, stats.InFlight == 1, "stats %+v, want one job that waits for its next delivery", stats)
}

func TestHandleUnknownReceivesJobsWithoutAHandler(t *testing.T) {
	var got []string
	mux := NewMux()
	Handle(mux, "bill", succeed)
	mux.HandleUnknown(func(_ context.Context, job *Job) error {
		got = append(got, job.Kind)
		return nil
	})
	for _, kind := range []string{"ship", "", "bill"} {
		require.NoError(t, mux.HandleJob(t.Context(), &Job{Kind: kind, Payload: []byte("{}")}))
	}
	require.Equal(t, []string{"ship", ""}, got)
}

func TestMiddlewareSeesEveryJobAndTheFirstIsTheOutermost(t *testing.T) {
	var calls []string
	record := func(name string) Middleware {
		return func(next Handler) Handler {
			calls = append(calls, "wrap "+name)
			return func(ctx context.Context, job *Job) error {
				calls = append(calls, name)
				err := next(ctx, job)
				calls = append(calls, fmt.Sprintf("%s: %v", name, err))
				return err
			}
		}
	}
	mux := NewMux()
	mux.Use(record("a"), record("b"))
	Handle(mux, "bill", func(context.Context, *Job, order) error {
		calls = append(calls, "handler")
		return errors.New("failed")
	})
	mux.Use(record("c"))
	mux.prepare() // creates the middleware once for each handler
	for title, row := range map[string]struct {
		job  *Job
		want []string
	}{
		"a handler":          {&Job{Kind: "bill", Payload: []byte("{}")}, []string{"a", "b", "c", "handler", "c: failed", "b: failed", "a: failed"}},
		"an invalid payload": {&Job{Kind: "bill"}, []string{"a", "b", "c", "c: the payload is invalid"}},
		"an unknown kind":    {&Job{Kind: "ship"}, []string{"a", "b", "c", "c: the worker has no handler"}},
	} {
		calls = nil
		_ = mux.HandleJob(t.Context(), row.job)
		for i, want := range row.want {
			require.True(t, i < len(calls) && strings.HasPrefix(calls[i], want), "%s: calls %q, want %q", title, calls, row.want)
		}
	}
}

func TestTheShorterTimeoutOfAKindAndItsQueueApplies(t *testing.T) {
	for _, row := range []struct{ queue, kind, want time.Duration }{
		{0, 0, 0}, {1, 0, 1}, {0, 1, 1}, {1, 2, 1}, {2, 1, 1},
	} {
		got := shorterTimeout(row.queue, row.kind)
		require.True(t, got == row.want, "%s of the queue and %s of the kind: %s, want %s", row.queue, row.kind, got, row.want)
	}
}

func TestAKindHasItsOwnAttemptsAndTimeout(t *testing.T) {
	onBothEngines(t, func(t *testing.T, env *testEnv) {
		mux := NewMux()
		fail := func(_ context.Context, job *Job, _ order) error {
			return fmt.Errorf("attempt %d of %d: %w", job.Attempt, job.MaxAttempts, Retry(0))
		}
		Handle(mux, "fewer", fail, WithRetry(RetryPolicy{MaxAttempts: new(1)}))
		Handle(mux, "more", fail, WithRetry(RetryPolicy{MaxAttempts: new(4)}))
		Handle(mux, "same", fail)
		hang := func(ctx context.Context, _ *Job, _ order) error { return waitForContext(ctx) }
		Handle(mux, "slow", hang, WithRetry(RetryPolicy{MaxAttempts: new(1)}), WithTimeout(50*time.Millisecond))
		for _, kind := range []string{"fewer", "more", "same", "slow"} {
			env.SendKind(kind, "{}")
		}
		w := env.startMux(mux, withFastRetries, func(c *Config) { c.Queues[0].JobTimeout = Duration(time.Hour) })
		env.WaitUntilEmpty()
		requireCleanShutdown(t, w)
		want := []string{
			"attempt 1 of 1: retry after 0s", "attempt 3 of 3: retry after 0s", "attempt 4 of 4: retry after 0s",
			"the job exceeded its timeout of 50ms: context deadline exceeded",
		}
		require.Equal(t, want, env.deadLetterErrors())
	})
}

func TestFieldsOfARetryPolicyThatAreSetReplaceThoseOfTheQueue(t *testing.T) {
	delays := func(initial, longest time.Duration) broker.RetryPolicy {
		return broker.RetryPolicy{MaxAttempts: 5, InitialDelay: initial, MaxDelay: longest, MultiplierPercent: 200, JitterPercent: 20}
	}
	queue := delays(time.Second, time.Minute)
	all := RetryPolicy{new(1), new(Duration(2)), new(Duration(3)), new(400), new(0)}
	for title, row := range map[string]struct {
		kind RetryPolicy
		want broker.RetryPolicy
	}{
		"none": {RetryPolicy{}, queue},
		"all":  {all, broker.RetryPolicy{MaxAttempts: 1, InitialDelay: 2, MaxDelay: 3, MultiplierPercent: 400}},
		"a longer initial delay than the maximum of the queue":  {RetryPolicy{InitialDelay: new(Duration(time.Hour))}, delays(time.Hour, time.Hour)},
		"a shorter maximum than the initial delay of the queue": {RetryPolicy{MaxDelay: new(Duration(1))}, delays(1, 1)},
	} {
		t.Run(title, func(t *testing.T) { require.Equal(t, row.want, row.kind.over(queue)) })
	}
}

func TestAMuxWithoutAWorkerAppliesTheConcurrencyAndTheTimeoutOfKinds(t *testing.T) {
	mux := NewMux()
	mux.Handle("bill", func(ctx context.Context, _ *Job) error { return waitForContext(ctx) }, WithConcurrency(1), WithTimeout(time.Millisecond))
	started, end := make(chan struct{}), make(chan struct{})
	mux.Handle("slow", func(context.Context, *Job) error {
		close(started)
		<-end
		return nil
	}, WithConcurrency(1))
	for range 2 { // the first one gives its slot back
		require.ErrorIs(t, mux.HandleJob(t.Context(), &Job{Kind: "bill"}), context.DeadlineExceeded)
	}
	result := make(chan error)
	go func() { result <- mux.HandleJob(t.Context(), &Job{Kind: "slow"}) }()
	<-started
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	require.ErrorIs(t, mux.HandleJob(ctx, &Job{Kind: "slow"}), context.DeadlineExceeded)
	close(end)
	require.NoError(t, <-result)
}

func TestMistakesInAMuxPanic(t *testing.T) {
	for title, row := range map[string]struct {
		mistake func(*Mux)
		want    string
	}{
		"no kind":               {func(m *Mux) { Handle(m, "", succeed) }, "there is no kind; use HandleUnknown"},
		"no handler":            {func(m *Mux) { m.Handle("a", nil) }, `the handler of the kind "a": the handler is nil`},
		"no typed handler":      {func(m *Mux) { Handle[order](m, "a", nil) }, "the handler is nil"},
		"no handler of unknown": {func(m *Mux) { m.HandleUnknown(nil) }, "the handler of unknown kinds is nil"},
		"two handlers":          {func(m *Mux) { Handle(m, "a", succeed); Handle(m, "a", succeed) }, `the kind "a" has two handlers`},
		"no concurrency":        {func(m *Mux) { Handle(m, "a", succeed, WithConcurrency(0)) }, "the concurrency is 0, must be at least 1"},
		"no timeout":            {func(m *Mux) { Handle(m, "a", succeed, WithTimeout(0)) }, "the timeout is 0s, must be more than 0"},
		"no decoder":            {func(m *Mux) { Handle(m, "a", succeed, WithDecoder(nil)) }, "the decoder is nil"},
		"an invalid policy":     {func(m *Mux) { Handle(m, "a", succeed, WithRetry(RetryPolicy{MaxAttempts: new(0)})) }, "retry.maxAttempts is 0"},
		"a late handler":        {func(m *Mux) { m.prepare(); Handle(m, "a", succeed) }, "the Mux was changed after its first use"},
		"late middleware":       {func(m *Mux) { m.prepare(); m.Use() }, "the Mux was changed after its first use"},
	} {
		t.Run(title, func(t *testing.T) {
			defer func() {
				text := fmt.Sprint(recover())
				require.True(t, strings.HasPrefix(text, "worker: ") && strings.Contains(text, row.want), "panic %q, want %q", text, row.want)
			}()
			row.mistake(NewMux())
		})
	}
}
