package asynq

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/yardmaster/yardmaster/internal/broker"
)

func nextTask(t *testing.T, lane broker.Consumer, wait time.Duration) broker.Delivery {
	t.Helper()
	var one broker.Delivery
	n, err := lane.Next(t.Context(), wait, func(d broker.Delivery) { one = d })
	if err != nil || (n == 1) != (one != nil) {
		t.Fatalf("%d: %v", n, err)
	}
	return one
}

func (b *testEnv) findTask(id string) *asynq.TaskInfo {
	b.t.Helper()
	task, err := b.ask.GetTaskInfo("orders", id)
	if errors.Is(err, asynq.ErrTaskNotFound) {
		return nil
	}
	b.requireSuccess(err)
	return task
}

func TestTasksAreDequeuedOnlyOnRequest(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	for n := range 10 {
		b.enqueueTask(fmt.Sprint(n))
	}
	lane := b.openConsumer(b.Engine)
	for want := range int64(4) {
		// An asynq server of its own would have taken all by now.
		time.Sleep(2 * retryInterval)
		if f := b.readStats(); f.InFlight != want || f.Ready != 10-want {
			t.Fatalf("%+v, want %d in flight", f, want)
		}
		d := nextTask(t, lane, time.Second)
		if m := d.Message(); string(m.Payload) != fmt.Sprint(want) || m.Headers[headerType][0] != "bill" || time.Since(m.SentTime) > time.Minute || m.Priority != "default" {
			t.Errorf("%+v", m)
		}
		if behind := d.PendingCount(); behind != uint64(9-want) {
			t.Errorf("%d are behind it", behind)
		}
	}
	all, got := collectInto(t, lane, 100)
	if got != 6 || len(all) != 6 {
		t.Errorf("%d of what is ready", got)
	}
	if _, got := collectInto(t, lane, 1); got != 0 {
		t.Errorf("%d of nothing", got)
	}
}

func TestNextReturnsWithFirstTask(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	b.ensureQueue()
	lane := b.openConsumer(b.Engine)
	if d := nextTask(t, lane, 300*time.Millisecond); d != nil {
		t.Fatal("there is something")
	}
	began := time.Now()
	time.AfterFunc(200*time.Millisecond, func() { b.enqueueTask("x") })
	if d := nextTask(t, lane, 10*time.Second); d == nil || time.Since(began) > 5*time.Second {
		t.Errorf("after %s", time.Since(began))
	}
}

func TestPausedQueueDeliversNothing(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	b.ensureQueue()
	b.enqueueTask("x")
	pause := func(q *broker.QueueConfig) { q.Paused = true }
	b.ensureQueue(pause)
	b.ensureQueue(pause)
	lane := b.openConsumer(b.Engine)
	if d := nextTask(t, lane, 500*time.Millisecond); d != nil {
		t.Fatal("it is given out")
	}
	b.ensureQueue()
	if d := nextTask(t, lane, time.Second); d == nil {
		t.Fatal("it is not given out")
	}
}

func TestOutcomesOfADelivery(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		options []asynq.Option
		end     func(*testEnv, broker.Delivery) error
		state   asynq.TaskState // 0: the task is gone
		retried int
		says    string
	}{
		"Ack: it is gone": {nil, func(b *testEnv, d broker.Delivery) error { return d.Ack(b.t.Context(), true) }, 0, 0, ""},
		"Ack: it is kept for as long as its producer wants": {
			[]asynq.Option{asynq.Retention(time.Hour)},
			func(b *testEnv, d broker.Delivery) error { return d.Ack(b.t.Context(), true) }, asynq.TaskStateCompleted, 0, "",
		},
		"Retry: it waits for its next attempt": {
			nil, func(b *testEnv, d broker.Delivery) error { return d.Retry(b.t.Context(), time.Hour) }, asynq.TaskStateRetry, 1, "the attempt failed",
		},
		"Retry: its producer allows no other attempt": {
			[]asynq.Option{asynq.MaxRetry(0)},
			func(b *testEnv, d broker.Delivery) error { return d.Retry(b.t.Context(), time.Hour) }, asynq.TaskStateArchived, 0, "the attempt failed",
		},
		"Return: it can be taken": {
			nil, func(b *testEnv, d broker.Delivery) error { return d.Release(b.t.Context(), 0) }, asynq.TaskStatePending, 0, "",
		},
		"Return: also if it has no other attempt": {
			[]asynq.Option{asynq.MaxRetry(0)},
			func(b *testEnv, d broker.Delivery) error { return d.Release(b.t.Context(), 0) }, asynq.TaskStatePending, 0, "",
		},
		"Return: it can be taken later": {
			[]asynq.Option{asynq.MaxRetry(0)},
			func(b *testEnv, d broker.Delivery) error { return d.Release(b.t.Context(), time.Hour) }, asynq.TaskStateScheduled, 0, "",
		},
		"Bury: it is a dead letter": {
			nil, func(b *testEnv, d broker.Delivery) error { return d.Bury(b.t.Context(), "not JSON", 1) }, asynq.TaskStateArchived, 0, "not JSON",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTestEnv(t)
			id := b.enqueueTask("x", row.options...)
			lane := b.openConsumer(b.Engine)
			d := nextTask(t, lane, time.Second)
			b.requireSuccess(d.ExtendLease(t.Context()))
			b.requireSuccess(row.end(b, d))
			b.requireSuccess(row.end(b, d)) // said again, as after a broken connection
			task := b.findTask(id)
			if row.state == 0 {
				if task != nil {
					t.Errorf("%+v", task)
				}
			} else if task == nil || task.State != row.state || task.Retried != row.retried || task.LastErr != row.says {
				t.Errorf("%+v", task)
			}
			if f := b.readStats(); f.InFlight != 0 {
				t.Errorf("%+v", f)
			}
			if gone, err := d.WasRemoved(t.Context()); !gone || err != nil {
				t.Errorf("gone: %t, %v", gone, err)
			}
			if row.state == asynq.TaskStatePending {
				again := nextTask(t, lane, time.Second)
				if again == nil {
					t.Fatal("it is not given out again")
				}
				b.requireSuccess(again.Ack(t.Context(), true))
				if b.findTask(id) != nil {
					t.Error("it is still there")
				}
			}
		})
	}
}

func TestRetriedTaskReturnsAfterDelayWithAttempts(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	b.enqueueTask("x")
	lane := b.openConsumer(b.Engine)
	for attempt := 1; attempt <= 3; attempt++ {
		d := nextTask(t, lane, 10*time.Second)
		if d == nil {
			t.Fatalf("attempt %d does not come", attempt)
		}
		if got, err := d.AttemptNumber(t.Context()); got != attempt || err != nil {
			t.Errorf("attempt %d: %v, want %d", got, err, attempt)
		}
		b.requireSuccess(d.Retry(t.Context(), 10*time.Millisecond))
	}
}

func TestTimedOutTaskCannotBeSettled(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	id := b.enqueueTask("x", asynq.Timeout(time.Second))
	d := nextTask(t, b.openConsumer(b.Engine), time.Second)
	eventually(t, "asynq takes it away", func() bool { return b.findTask(id).State == asynq.TaskStateRetry })
	if err := d.ExtendLease(t.Context()); broker.ClassOf(err) != broker.ClassInvalid {
		t.Errorf("the lease: %v", err)
	}
	if gone, err := d.WasRemoved(t.Context()); !gone || err != nil {
		t.Errorf("gone: %t, %v", gone, err)
	}
	if err := d.Ack(t.Context(), true); broker.ClassOf(err) != broker.ClassInvalid {
		t.Errorf("acknowledging: %v", err)
	}
	if task := b.findTask(id); task == nil || task.State != asynq.TaskStateRetry {
		t.Errorf("%+v", task)
	}
}

func TestTasksOfStoppedConsumerCanBeSettled(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	first, second := b.enqueueTask("1"), b.enqueueTask("2")
	lane := b.openConsumer(b.Engine)
	d := nextTask(t, lane, time.Second)
	lane.Stop()
	time.Sleep(2 * shutdownTimeout) // longer than a server waits that was shut down
	b.requireSuccess(d.ExtendLease(t.Context()))
	b.requireSuccess(d.Ack(t.Context(), true))
	if b.findTask(first) != nil || b.findTask(second).State != asynq.TaskStatePending {
		t.Errorf("%+v, %+v", b.findTask(first), b.findTask(second))
	}
	b.Disconnect()
}

func TestDisconnectReleasesUnsettledTasks(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	id := b.enqueueTask("x", asynq.MaxRetry(0))
	e := b.connect()
	d := nextTask(t, b.openConsumer(e), time.Second)
	e.Disconnect()
	if task := b.findTask(id); task.State != asynq.TaskStatePending || task.Retried != 0 {
		t.Errorf("%+v", task)
	}
	if err := d.Ack(t.Context(), true); broker.ClassOf(err) != broker.ClassInvalid {
		t.Errorf("acknowledging: %v", err)
	}
	if other := nextTask(t, b.openConsumer(b.Engine), time.Second); other == nil {
		t.Error("nobody else has it")
	}
}

func TestConsumerContinuesAfterServerRestart(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	b.enqueueTask("1")
	b.enqueueTask("2")
	lane := b.openConsumer(b.Engine)
	d := nextTask(t, lane, time.Second)
	b.server.Stop()
	if err := d.Ack(t.Context(), true); broker.ClassOf(err) != broker.ClassUnreachable {
		t.Errorf("acknowledging: %v", err)
	}
	if n, err := lane.Next(t.Context(), time.Second, func(broker.Delivery) {}); n != 0 || broker.ClassOf(err) != broker.ClassUnreachable {
		t.Errorf("%d: %v", n, err)
	}
	b.server.Restart()
	eventually(t, "asynq has stored it", func() bool { return d.Ack(t.Context(), true) == nil })
	eventually(t, "the next one comes", func() bool {
		n, err := lane.Next(t.Context(), time.Second, func(broker.Delivery) {})
		return n == 1 && err == nil
	})
}

// asynq repeats a word that it could not store, and the task may be with somebody else by
// then: here, with the same lane.
func TestLateResultOfAnEarlierDeliveryIsIgnored(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	id := b.enqueueTask("x")
	l := b.openConsumer(b.Engine).(*taskConsumer)
	b.requireSuccess(nextTask(t, l, time.Second).Release(t.Context(), 0))
	d := nextTask(t, l, time.Second)
	late := &gatedClient{b.Engine.client, l}
	done := late.Eval(t.Context(), `return redis.call("LREM", KEYS[1], 0, ARGV[1])`, []string{activeKey("orders"), leaseKey("orders"), taskKey("orders", id)}, id)
	if !isTaskNotActive(done.Err()) {
		t.Errorf("it says %v, %v", done.Val(), done.Err())
	}
	b.requireSuccess(d.ExtendLease(t.Context()))
	b.requireSuccess(d.Ack(t.Context(), true))
}

func TestSecondPriorityHasNoMessages(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	b.enqueueTask("x")
	from, err := b.Subscribe(t.Context(), "orders")
	b.requireSuccess(err)
	high, err := from.Consumer(t.Context(), "high")
	b.requireSuccess(err)
	defer high.Stop()
	low, err := from.Consumer(t.Context(), "low")
	b.requireSuccess(err)
	defer low.Stop()
	if _, got := collectInto(t, low, 1); got != 0 || nextTask(t, low, 10*time.Millisecond) != nil {
		t.Error("the second has messages")
	}
	if d := nextTask(t, high, time.Second); d == nil || d.Message().Priority != "high" {
		t.Error("the first has none")
	}
	limiter, err := from.RateLimiter(t.Context())
	b.requireSuccess(err)
	defer limiter.Stop()
	times, err := limiter.Reserve(t.Context(), 3)
	if limiter.IsLimited() || err != nil || len(times) != 3 || time.Until(times[2]) > 0 {
		t.Errorf("%v: %v", times, err)
	}
}
