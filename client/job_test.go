package client

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/dial"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/worker"
)

// withResults keeps the states of jobs for an hour.
func withResults(q *broker.QueueConfig) {
	q.Results = broker.ResultsConfig{Retention: time.Hour, MaxBytes: broker.DefaultResultsBytes}
	q.Retry.MaxAttempts, q.Retry.InitialDelay, q.Retry.JitterPercent = 2, time.Second, 0
}

// onEachEngineWithResults runs a test with a queue that keeps the states of its jobs.
func onEachEngineWithResults(t *testing.T, test func(*testing.T, *testEnv)) {
	onEachEngine(t, test, withResults)
}

// requireState waits until a job has a state, and returns what is known about it then.
func (env *testEnv) requireState(id string, state State) (info JobInfo) {
	env.t.Helper()
	poll.Until(env.t, id+" to be "+string(state), func() bool {
		info = require.Call(env.Job(env.t.Context(), "orders", id)).Succeeds(env.t)
		return info.State == state
	})
	return info
}

// holdRetries makes jobs that fail wait until the queue is ensured again. A busy machine could otherwise miss that a job waits.
func (env *testEnv) holdRetries() {
	env.t.Helper()
	env.Update(withResults, func(q *broker.QueueConfig) { q.Paused = true })
}

func (env *testEnv) requireCancel(id string, want Cancellation) {
	env.t.Helper()
	outcome, err := env.Cancel(env.t.Context(), "orders", id)
	require.True(env.t, outcome == want && err == nil, "canceling %s: %q, %v, want %q", id, outcome, err, want)
}

var ignoreTimes = cmpopts.IgnoreFields(JobInfo{}, "StartTime", "NextTime", "UpdateTime", "MaxAttempts")

func TestTheStateOfAJobIsReportedUntilItIsDone(t *testing.T) {
	onEachEngineWithResults(t, func(t *testing.T, env *testEnv) {
		env.enqueue(`1`, ID("a.b"), Kind("sum"), Track())
		require.Equal(t, 0, env.requireState("a.b", StateWaiting).Attempt)
		isRunning, proceed := make(chan struct{}), make(chan error)
		mux := worker.NewMux()
		worker.HandleResult(mux, "sum", func(ctx context.Context, job *worker.Job, _ int) (map[string]int, error) {
			job.Progress(ctx, 0.25, "a quarter")
			isRunning <- struct{}{}
			return map[string]int{"attempt": job.Attempt}, <-proceed
		})
		env.runWorker(mux)
		<-isRunning
		running := env.requireState("a.b", StateRunning)
		require.True(t, running.Attempt == 1 && running.Kind == "sum", "running: %+v", running)
		poll.Until(t, "the progress to be stored", func() bool {
			progress := env.requireState("a.b", StateRunning).Progress
			return env.engine == dial.AsynqEngine || progress != nil && *progress == Progress{0.25, "a quarter"} // asynq stores none
		})
		env.holdRetries()
		proceed <- errors.New("not yet")
		retrying := env.requireState("a.b", StateRetrying)
		require.True(t, retrying.Attempt == 1 && retrying.Error == "not yet", "retrying: %+v", retrying)
		_, err := Result[map[string]int](t.Context(), env.Client, "orders", "a.b")
		require.ErrorIs(t, err, ErrNoResult)
		env.Update(withResults)
		<-isRunning
		proceed <- nil
		info := env.requireState("a.b", StateDone)
		want := JobInfo{ID: "a.b", State: StateDone, Kind: "sum", Priority: "default", Attempt: 2, Result: []byte(`{"attempt":2}`)}
		require.Equal(t, want, info, ignoreTimes)
		result, err := Result[map[string]int](t.Context(), env.Client, "orders", "a.b")
		require.True(t, result["attempt"] == 2 && err == nil, "result %v, %v", result, err)
	})
}

func TestAJobIsFoundByTheIDThatTheBrokerAssigned(t *testing.T) {
	onEachEngineWithResults(t, func(t *testing.T, env *testEnv) {
		waiting := env.enqueue("1").ID
		delayed := env.enqueue("2", Delay(time.Hour)).ID
		env.requireState(waiting, StateWaiting)
		info := env.requireState(delayed, StateWaiting)
		require.True(t, time.Until(info.NextTime) >= 50*time.Minute, "due at %s", info.NextTime)
		env.requireState("9999", StateUnknown)
	})
}

func TestADeadJobHasItsErrorAndWaitsAfterItWasRequeued(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t, dial.NATSEngine, withResults)
	env.enqueue("1", ID("a"))
	mux := worker.NewMux()
	mux.HandleUnknown(func(context.Context, *worker.Job) error { return worker.DeadLetter("bad\x00\n") })
	stop := env.runWorker(mux)
	info := env.requireState("a", StateDead)
	require.True(t, info.Error == "bad\x00\n" && info.Attempt == 1, "%+v", info)
	poll.Until(t, "the job to be a dead letter", func() bool { return env.Stats().DeadLetters == 1 })
	stop()
	require.Equal(t, 1, require.Call(env.Engine.DeadLetters("orders").Requeue(t.Context(), broker.RequeueOptions{})).Succeeds(t))
	env.requireState("a", StateWaiting)
	env.runWorker((&jobLog{}).mux())
	env.requireState("a", StateDone)
}

func TestAQueueThatKeepsNoStatesSaysSo(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t, dial.NATSEngine)
	_, err := env.Job(t.Context(), "orders", "1")
	requireError(t, err, ErrUnsupported, "queue")
	_, err = env.Cancel(t.Context(), "orders", "1")
	requireError(t, err, ErrUnsupported, "queue")
	_, err = env.Job(t.Context(), "nobody", "1")
	requireError(t, err, ErrUnknownQueue, "queue")
	_, err = env.Job(t.Context(), "orders", "\n")
	requireError(t, err, ErrInvalid, "id")
}

func TestARunningJobIsCanceled(t *testing.T) {
	onEachEngineWithResults(t, func(t *testing.T, env *testEnv) {
		causes := make(chan error, 1)
		isRunning := make(chan struct{})
		mux := worker.NewMux()
		mux.HandleUnknown(func(ctx context.Context, _ *worker.Job) error {
			close(isRunning)
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return ctx.Err()
		})
		env.enqueue("1", ID("a"))
		env.runWorker(mux)
		<-isRunning
		env.requireState("a", StateRunning)
		env.requireCancel("a", CancelRequested)
		require.ErrorIs(t, <-causes, worker.ErrCanceled)
		env.requireState("a", StateCanceled)
		env.requireCancel("a", CancelTooLate)
		require.Equal(t, 0, env.Stats().DeadLetters)
	})
}

func TestAWaitingJobThatIsCanceledNeverRuns(t *testing.T) {
	onEachEngineWithResults(t, func(t *testing.T, env *testEnv) {
		env.enqueue("canceled", ID("a"), Track())
		env.enqueue("delayed", ID("b"), Delay(time.Hour))
		waiting := CancelRequested
		if env.engine == dial.AsynqEngine {
			waiting = CancelDone
		}
		env.requireCancel("a", waiting)
		env.requireCancel("b", CancelDone)
		env.enqueue("kept", ID("c"))
		log := &jobLog{}
		env.runWorker(log.mux())
		env.requireState("c", StateDone)
		env.requireState("a", StateCanceled)
		env.requireState("b", StateCanceled)
		require.Equal(t, []string{"kept"}, log.payloads())
	})
}

func TestACanceledIDCanBeSentAgain(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t, dial.NATSEngine, withResults)
	env.requireCancel("a", CancelRequested)
	env.enqueue("1", ID("a"))
	env.runWorker((&jobLog{}).mux())
	env.requireState("a", StateDone)
}

func (env *testEnv) cancel(id string) bool {
	env.t.Helper()
	return require.Call(env.CancelDelayed(env.t.Context(), "orders", id)).Succeeds(env.t)
}

func TestOnlyDelayedJobsAreCanceled(t *testing.T) {
	onEachEngine(t, func(t *testing.T, env *testEnv) {
		env.enqueue("canceled", ID("a.b/c"), Delay(time.Hour))
		require.True(t, env.cancel("a.b/c"), "the job was not canceled")
		require.True(t, !env.cancel("a.b/c"), "the job was canceled twice")
		env.enqueue("ready", ID("a"))
		env.enqueue("due", ID("b"), Delay(time.Second))
		ids := []string{"a", "b", "never-sent"}
		if env.engine == dial.AsynqEngine {
			ids = []string{"a", "never-sent"} // the second job becomes ready only while a worker runs
		} else {
			poll.Until(t, "the second job to be due", func() bool { return env.Stats().Delayed == 0 })
		}
		for _, id := range ids {
			require.True(t, !env.cancel(id), "%s was canceled", id)
		}
		require.Equal(t, 2, env.Left()) // not the job that was canceled
		_, err := env.CancelDelayed(t.Context(), "nobody", "a")
		requireError(t, err, ErrUnknownQueue, "queue")
		_, err = env.CancelDelayed(t.Context(), "orders", "a b")
		requireError(t, err, ErrInvalid, "id")
		_, err = env.CancelDelayed(t.Context(), "*", "a")
		requireError(t, err, ErrInvalid, "queue")
		env.stop()
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		_, err = env.CancelDelayed(ctx, "orders", "a")
		requireError(t, err, ErrUnavailable, "")
	})
}
