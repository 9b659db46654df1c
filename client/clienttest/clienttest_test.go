package clienttest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/client"
	"github.com/yardmaster/yardmaster/client/clienttest"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/worker"
)

func enqueue(t *testing.T, c *client.Client, payload string, options ...client.Option) {
	t.Helper()
	require.Call(c.Enqueue(t.Context(), "orders", []byte(payload), options...)).Succeeds(t)
}

func TestJobsHaveWhatTheProducerSet(t *testing.T) {
	queues := clienttest.New(t, clienttest.Queue{Name: "orders", Priorities: []string{"high", "default"}})
	c := queues.Connect(client.Options{})
	enqueue(t, c, "1", client.Header("Tenant", "a"), client.Kind("charge"), client.Timeout(time.Minute))
	enqueue(t, c, "2", client.ID("order-7"), client.Priority("high"), client.Delay(time.Hour))
	jobs := queues.Jobs("orders")
	wait := jobs[1].DueTime.Sub(queues.Now())
	require.True(t, wait > 59*time.Minute && wait <= time.Hour, "the job is due in %s", wait)
	for i := range jobs {
		age := queues.Now().Sub(jobs[i].SentTime)
		require.True(t, age >= 0 && age <= time.Minute, "job %d was sent %s ago", i, age)
		jobs[i].SentTime, jobs[i].DueTime = time.Time{}, time.Time{}
	}
	want := []clienttest.Job{
		{
			ID: "1", Priority: "default", Kind: "charge", Payload: []byte("1"),
			Headers: map[string][]string{"Tenant": {"a"}, "Yardmaster-Kind": {"charge"}, "Yardmaster-Timeout": {"1m0s"}},
		},
		{ID: "order-7", Priority: "high", Payload: []byte("2"), Headers: map[string][]string{}},
	}
	require.Equal(t, want, jobs)
}

func TestRunRunsJobsThatAreDueInOrderOfPriority(t *testing.T) {
	queues := clienttest.New(t, clienttest.Queue{Name: "orders", Priorities: []string{"high", "default"}})
	c := queues.Connect(client.Options{})
	enqueue(t, c, "later", client.Delay(time.Hour))
	enqueue(t, c, "second", client.Kind("my-"))
	enqueue(t, c, "first", client.Priority("high"))
	var ran []string
	handler := func(_ context.Context, job *worker.Job) error {
		ran = append(ran, fmt.Sprintf("%s %s%s %d/%d", job.Priority, job.Kind, job.Payload, job.Attempt, job.MaxAttempts))
		return nil
	}
	require.Equal(t, 2, queues.Run(t.Context(), "orders", handler))
	queues.Advance(time.Hour)
	require.Equal(t, 1, queues.Run(t.Context(), "orders", handler))
	require.Equal(t, []string{"high first 1/5", "default my-second 1/5", "default later 1/5"}, ran)
	require.Equal(t, 0, len(queues.Jobs("orders")))
}

// atFirst is a handler that fails in its first call.
func atFirst(err error) func(*worker.Job) error {
	return func(*worker.Job) error {
		result := err
		err = nil
		return result
	}
}

func TestResultsOfHandlersHaveTheSameEffectAsInAWorker(t *testing.T) {
	twoWaits := []time.Duration{time.Second, 2 * time.Second}
	for title, row := range map[string]struct {
		handler func(*worker.Job) error
		// waits are the delays before the next attempts.
		waits    []time.Duration
		attempts int
		letter   string
	}{
		"done":        {handler: func(*worker.Job) error { return nil }, attempts: 1},
		"dead letter": {handler: func(*worker.Job) error { return worker.DeadLetter("bad") }, attempts: 1, letter: "bad"},
		"retried":     {handler: func(*worker.Job) error { return errors.New("no") }, waits: twoWaits, attempts: 3, letter: "no"},
		"Retry":       {handler: atFirst(worker.Retry(time.Hour)), waits: []time.Duration{time.Hour}, attempts: 2},
		"panic":       {handler: func(*worker.Job) error { panic("oh") }, waits: twoWaits, attempts: 3, letter: "panic: oh"},
		"snoozed":     {handler: atFirst(worker.Snooze(time.Minute)), waits: []time.Duration{time.Minute}, attempts: 1},
	} {
		t.Run(title, func(t *testing.T) {
			queues := clienttest.New(t, clienttest.Queue{Name: "orders", MaxAttempts: 3})
			enqueue(t, queues.Connect(client.Options{}), "x")
			run := func() int {
				return queues.Run(t.Context(), "orders", func(_ context.Context, job *worker.Job) error { return row.handler(job) })
			}
			attempts := run()
			for _, wait := range row.waits {
				queues.Advance(wait - time.Second/2)
				early := run()
				require.True(t, early == 0, "%d attempts before %s", early, wait)
				queues.Advance(time.Second)
				attempts += run()
			}
			require.Equal(t, row.attempts, attempts)
			require.Equal(t, 0, len(queues.Jobs("orders")))
			letters := queues.DeadLetters("orders")
			isRight := len(letters) == 1 && letters[0].Error == row.letter && letters[0].Attempts == row.attempts
			require.True(t, isRight || len(letters) == 0 && row.letter == "", "dead letters %+v, want %q", letters, row.letter)
		})
	}
}

func TestAJobThatWaitsForOthersRunsInALaterCall(t *testing.T) {
	queues := clienttest.New(t, clienttest.Queue{Name: "orders"})
	c := queues.Connect(client.Options{})
	final := client.NewJob([]byte("final"), client.ID("x"))
	require.Call(c.EnqueueBatch(t.Context(), "orders", []client.Job{client.NewJob([]byte("a")), client.NewJob([]byte("b"))}, final)).Succeeds(t)
	enqueue(t, c, "unique", client.Unique("k"))
	_, err := c.Enqueue(t.Context(), "orders", nil, client.Unique("k"))
	require.ErrorIs(t, err, client.ErrKeyTaken)
	var ran []string
	for range 2 {
		queues.Run(t.Context(), "orders", func(_ context.Context, job *worker.Job) error {
			ran = append(ran, string(job.Payload))
			return nil
		})
	}
	require.True(t, len(ran) == 4 && slices.Contains(ran, "final"), "%v ran", ran)
	enqueue(t, c, "unique", client.Unique("k"))
}

func TestTheStatesOfJobsAreKept(t *testing.T) {
	queues := clienttest.New(t, clienttest.Queue{Name: "orders", Results: time.Hour})
	c := queues.Connect(client.Options{})
	for _, id := range []string{"done", "failed", "canceled"} {
		enqueue(t, c, id, client.ID(id), client.Track())
	}
	require.Equal(t, client.CancelRequested, require.Call(c.Cancel(t.Context(), "orders", "canceled")).Succeeds(t))
	run := func() {
		queues.Run(t.Context(), "orders", func(_ context.Context, job *worker.Job) error {
			if job.ID == "failed" && job.Attempt == 1 {
				return errors.New("not yet")
			}
			return job.SetResult(job.Attempt)
		})
	}
	run()
	for id, want := range map[string]client.State{"done": client.StateDone, "failed": client.StateRetrying, "canceled": client.StateCanceled} {
		info, err := c.Job(t.Context(), "orders", id)
		require.True(t, info.State == want && err == nil, "%s: %+v, %v, want %s", id, info, err, want)
	}
	queues.Advance(time.Minute)
	run()
	require.Equal(t, 2, require.Call(client.Result[int](t.Context(), c, "orders", "failed")).Succeeds(t))
}

func TestFailuresOfTheBrokerCanBeTested(t *testing.T) {
	queues := clienttest.New(t, clienttest.Queue{Name: "orders", MaxBacklog: 1})
	c := queues.Connect(client.Options{})
	send := func() error {
		_, err := c.Enqueue(t.Context(), "orders", nil)
		return err
	}
	queues.SetUnavailable(true)
	require.ErrorIs(t, send(), client.ErrUnavailable)
	queues.SetUnavailable(false)
	require.NoError(t, send())
	require.ErrorIs(t, send(), client.ErrQueueFull)
	queues.Drain("orders")
	require.ErrorIs(t, send(), client.ErrDraining)
	require.NoError(t, c.Close(t.Context()))
	require.ErrorIs(t, send(), client.ErrClosed)
}
