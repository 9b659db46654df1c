package asynq

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/jobstate"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

func nextTask(t *testing.T, consumer broker.Consumer, wait time.Duration) broker.Delivery {
	t.Helper()
	var one broker.Delivery
	n, err := consumer.Next(t.Context(), wait, func(d broker.Delivery) { one = d })
	require.True(t, err == nil && (n == 1) == (one != nil), "%d: %v", n, err)
	return one
}

func (b *testEnv) findTask(id string) *asynq.TaskInfo {
	b.t.Helper()
	task, err := b.inspector.GetTaskInfo("orders", id)
	if errors.Is(err, asynq.ErrTaskNotFound) {
		return nil
	}
	b.requireSuccess(err)
	return task
}

func TestTasksAreDequeuedOnlyOnRequest(t *testing.T) {
	b := newTestEnv(t)
	for n := range 10 {
		b.enqueueTask(fmt.Sprint(n))
	}
	consumer := b.openConsumer(b.Engine)
	for want := range int64(4) {
		// A regular asynq server would have dequeued all tasks by now.
		time.Sleep(2 * retryInterval)
		f := b.readStats()
		require.True(t, f.InFlight == want && f.Ready == 10-want, "%+v, want %d in flight", f, want)
		d := nextTask(t, consumer, time.Minute)
		m := d.Message()
		isRight := string(m.Payload) == fmt.Sprint(want) && m.Headers[headerType][0] == "bill" && m.Priority == "default"
		require.True(t, isRight && time.Since(m.SentTime) <= 10*time.Minute, "%+v", m)
		require.Equal(t, uint64(9-want), d.PendingCount())
	}
	all, got := collectInto(t, consumer, 100)
	require.True(t, got == 6 && len(all) == 6, "fetched %d tasks, want 6", got)
	_, got = collectInto(t, consumer, 1)
	require.Equal(t, 0, got) // the queue is empty
}

func TestARequestToCancelIsNotForALaterJob(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(broker.Delivery) error{
		"after the job is done": func(d broker.Delivery) error { return d.Ack(t.Context(), true) },
		"after the job is dead": func(d broker.Delivery) error { return d.Bury(t.Context(), "refused", 1) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newTestEnv(t)
			b.ensureQueue()
			cancels := recordKey("orders", cancelsPart)
			requests := make(chan jobstate.Cancel)
			record := func() broker.JobRecorder {
				from := require.Call(b.Subscribe(t.Context(), "orders")).Succeeds(b.t)
				recorder, err := from.JobRecorder(t.Context(), func(_ string, request jobstate.Cancel) {
					select {
					case requests <- request:
					case <-t.Context().Done():
					}
				})
				b.requireSuccess(err)
				return recorder
			}
			consumer := b.openConsumer(b.Engine)
			id := b.enqueueTask("x")
			delivery := nextTask(t, consumer, time.Minute)
			require.Call(b.CancelJob(t.Context(), "orders", id)).Succeeds(b.t)
			recorder := record()
			valid := (<-requests).ValidFor
			require.True(t, valid > 0 && valid <= time.Minute, "a worker that does not run the job cancels jobs with its ID for %s", valid)
			recorder.Stop()
			b.requireSuccess(end(delivery))
			recorder = record()
			defer recorder.Stop()
			poll.Until(t, "the end of the request", func() bool {
				exists := require.Call(b.Engine.client.HExists(t.Context(), cancels, id).Result()).Succeeds(b.t)
				return !exists
			})
			select {
			case request := <-requests:
				t.Errorf("a job that has ended is to be canceled: %+v", request)
			default:
			}
		})
	}
}

// asynq computes the end of a lease when it starts to wait for a task. It drops the results of a task whose lease has expired.
func TestTheLeaseOfATaskBeginsWithItsDeliveryHoweverLongItsConsumerWaited(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]func(t *testing.T, consumer broker.Consumer){
		"without requests": func(*testing.T, broker.Consumer) { time.Sleep(leaseDuration + time.Second) },
		"with many requests": func(t *testing.T, consumer broker.Consumer) {
			t.Helper()
			for start := time.Now(); time.Since(start) < leaseDuration+time.Second; {
				require.True(t, nextTask(t, consumer, time.Second) == nil, "an empty queue delivered a task")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newTestEnv(t)
			b.ensureQueue()
			consumer := b.openConsumer(b.Engine)
			wait(t, consumer)
			b.enqueueTask("x")
			d := nextTask(t, consumer, time.Second)
			require.True(t, d != nil, "no task")
			left := time.Until(b.leaseOf(d.Message().ID))
			require.True(t, left >= leaseDuration-maxDequeueAge-5*time.Second, "the lease ends in %s", left)
			b.requireSuccess(d.Ack(t.Context(), true)) // else the result of the task is lost
		})
	}
}

// leaseOf returns when the lease of a task ends.
func (b *testEnv) leaseOf(id string) time.Time {
	b.t.Helper()
	seconds := require.Call(b.Engine.client.ZScore(b.t.Context(), queueKey("orders", leaseSet), id).Result()).Succeeds(b.t)
	return time.Unix(int64(seconds), 0)
}

func TestPausedQueueDeliversNothing(t *testing.T) {
	b := newTestEnv(t)
	b.ensureQueue()
	b.enqueueTask("x")
	pause := func(q *broker.QueueConfig) { q.Paused = true }
	b.ensureQueue(pause)
	b.ensureQueue(pause)
	consumer := b.openConsumer(b.Engine)
	require.True(t, nextTask(t, consumer, 500*time.Millisecond) == nil, "a paused queue delivered a task")
	b.ensureQueue()
	require.True(t, nextTask(t, consumer, time.Minute) != nil, "a resumed queue delivered nothing")
}

func TestOutcomesOfADelivery(t *testing.T) {
	t.Parallel()
	ack := func(d broker.Delivery) error { return d.Ack(t.Context(), true) }
	retry := func(d broker.Delivery) error { return d.Retry(t.Context(), time.Hour, "it failed") }
	release := func(d broker.Delivery) error { return d.Release(t.Context(), 0) }
	releaseLater := func(d broker.Delivery) error { return d.Release(t.Context(), time.Hour) }
	bury := func(d broker.Delivery) error { return d.Bury(t.Context(), "not JSON", 1) }
	lastAttempt, kept := []asynq.Option{asynq.MaxRetry(0)}, []asynq.Option{asynq.Retention(time.Hour)}
	for name, row := range map[string]struct {
		options []asynq.Option
		end     func(broker.Delivery) error
		state   asynq.TaskState // 0: the task is deleted
		retried int
		lastErr string
	}{
		"Ack deletes the task": {nil, ack, 0, 0, ""},
		"Ack keeps the task for the retention set by its producer": {kept, ack, asynq.TaskStateCompleted, 0, ""},
		"Retry schedules the next attempt":                         {nil, retry, asynq.TaskStateRetry, 1, "it failed"},
		"Retry archives a task without attempts left":              {lastAttempt, retry, asynq.TaskStateArchived, 0, "it failed"},
		"Release makes the task pending":                           {nil, release, asynq.TaskStatePending, 0, ""},
		"Release makes a task without attempts left pending":       {lastAttempt, release, asynq.TaskStatePending, 0, ""},
		"Release with a delay schedules the task":                  {lastAttempt, releaseLater, asynq.TaskStateScheduled, 0, ""},
		"Bury archives the task":                                   {nil, bury, asynq.TaskStateArchived, 0, "not JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newTestEnv(t)
			id := b.enqueueTask("x", row.options...)
			consumer := b.openConsumer(b.Engine)
			d := nextTask(t, consumer, time.Minute)
			b.requireSuccess(d.ExtendLease(t.Context()))
			b.requireSuccess(row.end(d))
			b.requireSuccess(row.end(d)) // repeated, as after a broken connection
			task := b.findTask(id)
			if row.state == 0 {
				require.True(t, task == nil, "%+v", task)
			} else {
				require.True(t, task != nil && task.State == row.state && task.Retried == row.retried && task.LastErr == row.lastErr, "%+v", task)
			}
			require.Equal(t, 0, b.readStats().InFlight)
			require.Equal(t, true, require.Call(d.WasRemoved(t.Context())).Succeeds(t))
			if row.state == asynq.TaskStatePending {
				again := nextTask(t, consumer, time.Minute)
				require.True(t, again != nil, "the task is not delivered again")
				b.requireSuccess(again.Ack(t.Context(), true))
				require.True(t, b.findTask(id) == nil, "the task still exists")
			}
		})
	}
}

func TestRetriedTaskReturnsAfterDelayWithAttempts(t *testing.T) {
	b := newTestEnv(t)
	b.enqueueTask("x")
	consumer := b.openConsumer(b.Engine)
	for attempt := 1; attempt <= 3; attempt++ {
		d := nextTask(t, consumer, time.Minute)
		require.True(t, d != nil, "attempt %d was not delivered", attempt)
		require.Equal(t, attempt, require.Call(d.History(t.Context())).Succeeds(t).Attempt())
		b.requireSuccess(d.Retry(t.Context(), 10*time.Millisecond, "it failed"))
	}
	// Lost deliveries are no attempts.
	want := broker.History{Failed: 3}
	for _, alone := range []bool{false, true} {
		d := nextTask(t, consumer, time.Minute)
		b.requireSuccess(d.MarkStart(t.Context(), false))
		b.requireSuccess(d.Release(t.Context(), 0)) // the mark has no effect
		d = nextTask(t, consumer, time.Minute)
		b.requireSuccess(d.MarkStart(t.Context(), alone))
		b.requireSuccess(d.Lose(t.Context(), 10*time.Millisecond, "it was lost"))
		want = want.AfterStart(alone)
	}
	require.Equal(t, want, require.Call(nextTask(t, consumer, time.Minute).History(t.Context())).Succeeds(t))
}

func TestTimedOutTaskCannotBeSettled(t *testing.T) {
	b := newTestEnv(t)
	id := b.enqueueTask("x", asynq.Timeout(time.Second))
	d := nextTask(t, b.openConsumer(b.Engine), time.Minute)
	poll.Until(t, "asynq to retry the task", func() bool { return b.findTask(id).State == asynq.TaskStateRetry })
	requireClass(t, broker.ClassInvalid, d.ExtendLease(t.Context()))
	require.Equal(t, true, require.Call(d.WasRemoved(t.Context())).Succeeds(t))
	requireClass(t, broker.ClassInvalid, d.Ack(t.Context(), true))
	task := b.findTask(id)
	require.True(t, task != nil && task.State == asynq.TaskStateRetry, "%+v", task)
}

func TestTasksOfStoppedConsumerCanBeSettled(t *testing.T) {
	b := newTestEnv(t)
	first, second := b.enqueueTask("1"), b.enqueueTask("2")
	consumer := b.openConsumer(b.Engine)
	d := nextTask(t, consumer, time.Minute)
	consumer.Stop()
	time.Sleep(2 * shutdownTimeout) // longer than a stopped asynq server waits for its tasks
	b.requireSuccess(d.ExtendLease(t.Context()))
	b.requireSuccess(d.Ack(t.Context(), true))
	require.True(t, b.findTask(first) == nil && b.findTask(second).State == asynq.TaskStatePending, "%+v, %+v", b.findTask(first), b.findTask(second))
	b.Disconnect()
}

func TestDisconnectReleasesUnsettledTasks(t *testing.T) {
	b := newTestEnv(t)
	id := b.enqueueTask("x", asynq.MaxRetry(0))
	e := b.connect()
	d := nextTask(t, b.openConsumer(e), time.Minute)
	e.Disconnect()
	task := b.findTask(id)
	require.True(t, task.State == asynq.TaskStatePending && task.Retried == 0, "%+v", task)
	requireClass(t, broker.ClassInvalid, d.Ack(t.Context(), true))
	require.True(t, nextTask(t, b.openConsumer(b.Engine), time.Minute) != nil, "the task is not delivered to another consumer")
}

// asynq repeats a result that it could not store. By then the task may have been delivered again, in this test to the same consumer.
func TestLateResultOfAnEarlierDeliveryIsIgnored(t *testing.T) {
	b := newTestEnv(t)
	id := b.enqueueTask("x")
	l := b.openConsumer(b.Engine).(*taskConsumer)
	b.requireSuccess(nextTask(t, l, time.Minute).Release(t.Context(), 0))
	d := nextTask(t, l, time.Minute)
	late := &gatedClient{b.Engine.client, l}
	done := late.Eval(t.Context(), `return redis.call("LREM", KEYS[1], 0, ARGV[1])`, []string{queueKey("orders", activeList), queueKey("orders", leaseSet), taskKey("orders", id)}, id)
	require.ErrorContains(t, done.Err(), errTaskNotActive.Error())
	b.requireSuccess(d.ExtendLease(t.Context()))
	b.requireSuccess(d.Ack(t.Context(), true))
}

func TestSecondPriorityHasNoMessages(t *testing.T) {
	b := newTestEnv(t)
	b.enqueueTask("x")
	from := require.Call(b.Subscribe(t.Context(), "orders")).Succeeds(b.t)
	high := require.Call(from.Consumer(t.Context(), "high")).Succeeds(b.t)
	defer high.Stop()
	low := require.Call(from.Consumer(t.Context(), "low")).Succeeds(b.t)
	require.True(t, low == nil, "the second priority has a consumer")
	require.Equal(t, "high", nextTask(t, high, time.Minute).Message().Priority)
	limiter, err := from.RateLimiter(t.Context())
	require.True(t, err == nil && limiter == nil, "asynq has a rate limiter: %v, %v", limiter, err)
}
