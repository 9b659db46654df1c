package asynq

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/yardmaster/yardmaster/internal/broker"
)

func await(t *testing.T, lane broker.Consumer, wait time.Duration) broker.Delivery {
	t.Helper()
	var one broker.Delivery
	n, err := lane.Next(t.Context(), wait, func(d broker.Delivery) { one = d })
	if err != nil || (n == 1) != (one != nil) {
		t.Fatalf("%d: %v", n, err)
	}
	return one
}

func (b *bench) task(id string) *asynq.TaskInfo {
	b.t.Helper()
	task, err := b.ask.GetTaskInfo("orders", id)
	if errors.Is(err, asynq.ErrTaskNotFound) {
		return nil
	}
	b.do(err)
	return task
}

func TestNothingIsTakenThatNobodyAskedFor(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for n := range 10 {
		b.send(fmt.Sprint(n))
	}
	lane := b.lane(b.Engine)
	for want := range int64(4) {
		// An asynq server of its own would have taken all by now.
		time.Sleep(2 * again)
		if f := b.figures(); f.InFlight != want || f.Ready != 10-want {
			t.Fatalf("%+v, want %d in flight", f, want)
		}
		d := await(t, lane, time.Second)
		if m := d.Message(); string(m.Payload) != fmt.Sprint(want) || m.Headers[headerType][0] != "bill" || time.Since(m.SentTime) > time.Minute || m.Priority != "default" {
			t.Errorf("%+v", m)
		}
		if behind := d.PendingCount(); behind != uint64(9-want) {
			t.Errorf("%d are behind it", behind)
		}
	}
	all, got := receive(t, lane, 100)
	if got != 6 || len(all) != 6 {
		t.Errorf("%d of what is ready", got)
	}
	if _, got := receive(t, lane, 1); got != 0 {
		t.Errorf("%d of nothing", got)
	}
}

func TestAwaitingEndsWithTheFirstTask(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.ensure()
	lane := b.lane(b.Engine)
	if d := await(t, lane, 300*time.Millisecond); d != nil {
		t.Fatal("there is something")
	}
	began := time.Now()
	time.AfterFunc(200*time.Millisecond, func() { b.send("x") })
	if d := await(t, lane, 10*time.Second); d == nil || time.Since(began) > 5*time.Second {
		t.Errorf("after %s", time.Since(began))
	}
}

func TestAPausedQueueGivesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.ensure()
	b.send("x")
	b.do(b.SetPaused(t.Context(), "orders", true))
	b.do(b.SetPaused(t.Context(), "orders", true))
	lane := b.lane(b.Engine)
	if d := await(t, lane, 500*time.Millisecond); d != nil {
		t.Fatal("it is given out")
	}
	b.do(b.SetPaused(t.Context(), "orders", false))
	if d := await(t, lane, time.Second); d == nil {
		t.Fatal("it is not given out")
	}
}

func TestHowADeliveryEnds(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		options []asynq.Option
		end     func(*bench, broker.Delivery) error
		state   asynq.TaskState // 0: the task is gone
		retried int
		says    string
	}{
		"Ack: it is gone": {nil, func(b *bench, d broker.Delivery) error { return d.Ack(b.t.Context(), true) }, 0, 0, ""},
		"Ack: it is kept for as long as its producer wants": {
			[]asynq.Option{asynq.Retention(time.Hour)},
			func(b *bench, d broker.Delivery) error { return d.Ack(b.t.Context(), true) }, asynq.TaskStateCompleted, 0, "",
		},
		"Retry: it waits for its next attempt": {
			nil, func(b *bench, d broker.Delivery) error { return d.Retry(b.t.Context(), time.Hour) }, asynq.TaskStateRetry, 1, "the attempt failed",
		},
		"Retry: its producer allows no other attempt": {
			[]asynq.Option{asynq.MaxRetry(0)},
			func(b *bench, d broker.Delivery) error { return d.Retry(b.t.Context(), time.Hour) }, asynq.TaskStateArchived, 0, "the attempt failed",
		},
		"Return: it can be taken": {
			nil, func(b *bench, d broker.Delivery) error { return d.Release(b.t.Context(), 0) }, asynq.TaskStatePending, 0, "",
		},
		"Return: also if it has no other attempt": {
			[]asynq.Option{asynq.MaxRetry(0)},
			func(b *bench, d broker.Delivery) error { return d.Release(b.t.Context(), 0) }, asynq.TaskStatePending, 0, "",
		},
		"Return: it can be taken later": {
			[]asynq.Option{asynq.MaxRetry(0)},
			func(b *bench, d broker.Delivery) error { return d.Release(b.t.Context(), time.Hour) }, asynq.TaskStateScheduled, 0, "",
		},
		"Bury: it is a dead letter": {
			nil, func(b *bench, d broker.Delivery) error { return d.Bury(b.t.Context(), "not JSON", 1) }, asynq.TaskStateArchived, 0, "not JSON",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			id := b.send("x", row.options...)
			lane := b.lane(b.Engine)
			d := await(t, lane, time.Second)
			b.do(d.ExtendLease(t.Context()))
			b.do(row.end(b, d))
			b.do(row.end(b, d)) // said again, as after a broken connection
			task := b.task(id)
			if row.state == 0 {
				if task != nil {
					t.Errorf("%+v", task)
				}
			} else if task == nil || task.State != row.state || task.Retried != row.retried || task.LastErr != row.says {
				t.Errorf("%+v", task)
			}
			if f := b.figures(); f.InFlight != 0 {
				t.Errorf("%+v", f)
			}
			if gone, err := d.WasRemoved(t.Context()); !gone || err != nil {
				t.Errorf("gone: %t, %v", gone, err)
			}
			if row.state == asynq.TaskStatePending {
				again := await(t, lane, time.Second)
				if again == nil {
					t.Fatal("it is not given out again")
				}
				b.do(again.Ack(t.Context(), true))
				if b.task(id) != nil {
					t.Error("it is still there")
				}
			}
		})
	}
}

func TestATaskComesAgainAfterItsDelayWithItsAttempts(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.send("x")
	lane := b.lane(b.Engine)
	for attempt := 1; attempt <= 3; attempt++ {
		d := await(t, lane, 10*time.Second)
		if d == nil {
			t.Fatalf("attempt %d does not come", attempt)
		}
		if got, err := d.AttemptNumber(t.Context()); got != attempt || err != nil {
			t.Errorf("attempt %d: %v, want %d", got, err, attempt)
		}
		b.do(d.Retry(t.Context(), 10*time.Millisecond))
	}
}

func TestATaskWhoseTimeIsOverIsNotSettledHere(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.send("x", asynq.Timeout(time.Second))
	d := await(t, b.lane(b.Engine), time.Second)
	eventually(t, "asynq takes it away", func() bool { return b.task(id).State == asynq.TaskStateRetry })
	if err := d.ExtendLease(t.Context()); broker.ClassOf(err) != broker.ClassInvalid {
		t.Errorf("the lease: %v", err)
	}
	if gone, err := d.WasRemoved(t.Context()); !gone || err != nil {
		t.Errorf("gone: %t, %v", gone, err)
	}
	if err := d.Ack(t.Context(), true); broker.ClassOf(err) != broker.ClassInvalid {
		t.Errorf("acknowledging: %v", err)
	}
	if task := b.task(id); task == nil || task.State != asynq.TaskStateRetry {
		t.Errorf("%+v", task)
	}
}

func TestAStoppedLaneLetsWhatItDeliveredBeSettled(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	first, second := b.send("1"), b.send("2")
	lane := b.lane(b.Engine)
	d := await(t, lane, time.Second)
	lane.Stop()
	time.Sleep(2 * abandonAfter) // longer than a server waits that was shut down
	b.do(d.ExtendLease(t.Context()))
	b.do(d.Ack(t.Context(), true))
	if b.task(first) != nil || b.task(second).State != asynq.TaskStatePending {
		t.Errorf("%+v, %+v", b.task(first), b.task(second))
	}
	b.Disconnect()
}

func TestWhatHandlersStillHaveGoesBackWithTheConnection(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.send("x", asynq.MaxRetry(0))
	e := b.connect()
	d := await(t, b.lane(e), time.Second)
	e.Disconnect()
	if task := b.task(id); task.State != asynq.TaskStatePending || task.Retried != 0 {
		t.Errorf("%+v", task)
	}
	if err := d.Ack(t.Context(), true); broker.ClassOf(err) != broker.ClassInvalid {
		t.Errorf("acknowledging: %v", err)
	}
	if other := await(t, b.lane(b.Engine), time.Second); other == nil {
		t.Error("nobody else has it")
	}
}

func TestALaneGoesOnAfterTheServerIsBack(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.send("1")
	b.send("2")
	lane := b.lane(b.Engine)
	d := await(t, lane, time.Second)
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
func TestALateWordOnAnEarlierDeliveryChangesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.send("x")
	l := b.lane(b.Engine).(*lane)
	b.do(await(t, l, time.Second).Release(t.Context(), 0))
	d := await(t, l, time.Second)
	late := &gate{b.Engine.client, l}
	done := late.Eval(t.Context(), `return redis.call("LREM", KEYS[1], 0, ARGV[1])`, []string{activeOf("orders"), leaseOf("orders"), taskOf("orders", id)}, id)
	if !notFound(done.Err()) {
		t.Errorf("it says %v, %v", done.Val(), done.Err())
	}
	b.do(d.ExtendLease(t.Context()))
	b.do(d.Ack(t.Context(), true))
}

func TestASecondPriorityHasNoMessages(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.send("x")
	from, err := b.Subscribe(t.Context(), "orders")
	b.do(err)
	high, err := from.Consumer(t.Context(), "high")
	b.do(err)
	defer high.Stop()
	low, err := from.Consumer(t.Context(), "low")
	b.do(err)
	defer low.Stop()
	if _, got := receive(t, low, 1); got != 0 || await(t, low, 10*time.Millisecond) != nil {
		t.Error("the second has messages")
	}
	if d := await(t, high, time.Second); d == nil || d.Message().Priority != "high" {
		t.Error("the first has none")
	}
	limiter, err := from.RateLimiter(t.Context())
	b.do(err)
	defer limiter.Stop()
	times, err := limiter.Reserve(t.Context(), 3)
	if limiter.IsLimited() || err != nil || len(times) != 3 || time.Until(times[2]) > 0 {
		t.Errorf("%v: %v", times, err)
	}
}
