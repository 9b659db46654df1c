package asynq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/bounded"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/redistest"
	"github.com/yardmaster/yardmaster/test/require"
)

// testEnv is a Redis server with an engine and with asynq's own client and inspector.
type testEnv struct {
	*Engine
	t         *testing.T
	server    *redistest.Server
	client    *asynq.Client
	inspector *asynq.Inspector
}

// newTestEnv runs the test in parallel to others.
func newTestEnv(t *testing.T) *testEnv {
	t.Helper()
	t.Parallel()
	return startTestEnv(t)
}

func startTestEnv(t *testing.T) *testEnv {
	t.Helper()
	b := &testEnv{t: t, server: redistest.Start(t)}
	b.Engine = b.connect()
	at := asynq.RedisClientOpt{Addr: b.server.Address()}
	b.client, b.inspector = asynq.NewClient(at), asynq.NewInspector(at)
	t.Cleanup(func() { _ = errors.Join(b.client.Close(), b.inspector.Close()) })
	return b
}

// boundedDial is how the operator connects.
var boundedDial = bounded.NewDialer(bounded.Options{AllowLocal: true}).For("team")

func (b *testEnv) connect() *Engine {
	b.t.Helper()
	e := require.Call(Connect(b.t.Context(), broker.Credentials{URL: b.server.URL(), Name: "test", Dial: boundedDial})).Succeeds(b.t)
	b.t.Cleanup(e.Disconnect)
	return e.(*Engine)
}

func (b *testEnv) enqueueTask(payload string, options ...asynq.Option) string {
	b.t.Helper()
	task, err := b.client.Enqueue(asynq.NewTask("bill", []byte(payload)), append([]asynq.Option{asynq.Queue("orders")}, options...)...)
	require.NoError(b.t, err)
	return task.ID
}

func (b *testEnv) readStats() broker.QueueStats {
	b.t.Helper()
	return require.Call(b.Stats(b.t.Context(), "orders")).Succeeds(b.t)
}

func (b *testEnv) requireSuccess(err error) {
	b.t.Helper()
	require.NoError(b.t, err)
}

func requireClass(t *testing.T, want broker.ErrorClass, err error) {
	t.Helper()
	require.True(t, broker.ClassOf(err) == want, "%v is %s, want %s", err, broker.ClassOf(err), want)
}

func desiredQueue(changes ...func(*broker.QueueConfig)) broker.QueueConfig {
	q := broker.DefaultQueueConfig("orders")
	q.Owner = broker.QueueOwner{UID: "1", Name: "ns/orders", Cluster: "c"}
	for _, change := range changes {
		change(&q)
	}
	return q
}

func (b *testEnv) ensureQueue(changes ...func(*broker.QueueConfig)) broker.EnsureResult {
	b.t.Helper()
	return require.Call(b.EnsureQueue(b.t.Context(), desiredQueue(changes...))).Succeeds(b.t)
}

func TestStatsMatchAsynqAndRedis(t *testing.T) {
	b := newTestEnv(t)
	startTime := time.Now().Add(-time.Second)
	for n := range 5 {
		b.enqueueTask(fmt.Sprint(n))
	}
	// No consumer runs any more when a task is due: it would make the task ready between two of the readings below.
	e := b.connect()
	retried, _ := collectInto(t, b.openConsumer(e), 1)
	b.requireSuccess(retried[0].Retry(t.Context(), time.Hour, "it failed"))
	e.Disconnect()
	active := b.server.RunCLI("RPOPLPUSH", "asynq:{orders}:pending", "asynq:{orders}:active")
	b.server.RunCLI("ZADD", "asynq:{orders}:lease", fmt.Sprint(time.Now().Add(time.Hour).Unix()), active)
	b.enqueueTask("later", asynq.ProcessIn(time.Hour))
	due := b.enqueueTask("due", asynq.ProcessIn(time.Hour))
	b.server.RunCLI("ZADD", "asynq:{orders}:scheduled", fmt.Sprint(time.Now().Unix()-100), due)
	dead := b.enqueueTask("dead")
	b.requireSuccess(b.inspector.ArchiveTask("orders", dead))

	f := b.readStats()
	info := require.Call(b.inspector.GetQueueInfo("orders")).Succeeds(b.t)
	for title, row := range map[string]struct {
		got, asynq, redis, want int64
	}{
		"ready":     {f.Ready - 1, int64(info.Pending), b.server.RunCLIForNumber("LLEN", "asynq:{orders}:pending"), 3},
		"in flight": {f.InFlight, int64(info.Active), b.server.RunCLIForNumber("LLEN", "asynq:{orders}:active"), 1},
		"delayed":   {f.Delayed + 1, int64(info.Scheduled + info.Retry), b.server.RunCLIForNumber("ZCARD", "asynq:{orders}:scheduled") + b.server.RunCLIForNumber("ZCARD", "asynq:{orders}:retry"), 3},
		"dead":      {f.DeadLetters, int64(info.Archived), b.server.RunCLIForNumber("ZCARD", "asynq:{orders}:archived"), 1},
	} {
		require.True(t, row.got == row.want && row.asynq == row.want && row.redis == row.want, "%s: %+v", title, row)
	}
	require.True(t, f.TotalArrivals == 8 && !f.MeasuredTime.Before(startTime) && time.Until(f.MeasuredTime) <= time.Minute, "%+v", f)
	// The oldest is the task that was due 100 s ago; without it, the oldest pending task.
	age := f.MeasuredTime.Sub(f.OldestReadyTime)
	require.True(t, age >= 99*time.Second && age <= 100*time.Second+time.Since(startTime), "the oldest is %s old", age)
	b.server.RunCLI("ZREM", "asynq:{orders}:scheduled", due)
	f = b.readStats()
	age = f.MeasuredTime.Sub(f.OldestReadyTime)
	require.True(t, age >= info.Latency && age <= info.Latency+time.Since(startTime), "the oldest is %s old, asynq reports %s", age, info.Latency)
}

// fetchTasks fetches tasks through a consumer that is open until the end of the test.
func (b *testEnv) fetchTasks(number int) []broker.Delivery {
	b.t.Helper()
	all, got := collectInto(b.t, b.openConsumer(b.Engine), number)
	require.True(b.t, got == number, "%d tasks, want %d", got, number)
	return all
}

func collectInto(t *testing.T, consumer broker.Consumer, number int) (all []broker.Delivery, got int) {
	t.Helper()
	got = require.Call(consumer.Fetch(t.Context(), number, func(d broker.Delivery) { all = append(all, d) })).Succeeds(t)
	return all, got
}

func (b *testEnv) openConsumer(e *Engine) broker.Consumer {
	b.t.Helper()
	from := require.Call(e.Subscribe(b.t.Context(), "orders")).Succeeds(b.t)
	consumer := require.Call(from.Consumer(b.t.Context(), "default")).Succeeds(b.t)
	b.t.Cleanup(consumer.Stop)
	return consumer
}

func TestTotalArrivalsNeverDecrease(t *testing.T) {
	b := newTestEnv(t)
	arrivals := func(want uint64) {
		t.Helper()
		require.Equal(t, want, b.readStats().TotalArrivals)
	}
	first := b.enqueueTask("1")
	b.enqueueTask("2")
	arrivals(2)
	b.requireSuccess(b.inspector.ArchiveTask("orders", first))
	arrivals(2)
	b.requireSuccess(b.DeadLetters("orders").Purge(t.Context()))
	arrivals(2)
	b.requireSuccess(b.fetchTasks(1)[0].Retry(t.Context(), 0, "it failed"))
	arrivals(2)
	b.enqueueTask("3")
	arrivals(3)
	b.requireSuccess(b.fetchTasks(1)[0].Ack(t.Context(), true))
	arrivals(3)
}

func TestEnsureQueue(t *testing.T) {
	t.Parallel()
	paused := func(q *broker.QueueConfig) { q.Paused = true }
	warn := func(q *broker.QueueConfig) { q.Drift = broker.DriftWarn }
	adopted := func(q *broker.QueueConfig) { q.Paused, q.AdoptsUnowned = true, true }
	same := func(*broker.QueueConfig) {}
	pausedByOther := func(config func(*broker.QueueConfig)) func(*testEnv) {
		return func(b *testEnv) { b.ensureQueue(config); b.requireSuccess(b.inspector.PauseQueue("orders")) }
	}
	drift := []broker.SettingDifference{{Object: "queue orders", Setting: "paused", Want: "false", Found: "true"}}
	for name, row := range map[string]struct {
		before func(*testEnv)
		change func(*broker.QueueConfig)
		want   broker.EnsureResult
		paused bool
	}{
		"a missing queue is created":                                   {func(*testEnv) {}, paused, broker.EnsureResult{Created: true}, true},
		"a queue created by asynq is adopted":                          {func(b *testEnv) { b.enqueueTask("x") }, adopted, broker.EnsureResult{Updated: true}, true},
		"a second call changes nothing":                                {func(b *testEnv) { b.ensureQueue() }, same, broker.EnsureResult{}, false},
		"a queue is paused":                                            {func(b *testEnv) { b.ensureQueue() }, paused, broker.EnsureResult{Updated: true}, true},
		"a pause by another client is ended":                           {pausedByOther(same), same, broker.EnsureResult{Drift: drift, Corrected: true}, false},
		"a pause by another client is reported with drift policy Warn": {pausedByOther(warn), warn, broker.EnsureResult{Drift: drift}, true},
		"a deleted queue is created again":                             {func(b *testEnv) { b.ensureQueue(); b.requireSuccess(b.inspector.DeleteQueue("orders", true)) }, same, broker.EnsureResult{Created: true}, false},
		"a queue that rejects messages accepts them again": {
			func(b *testEnv) {
				b.ensureQueue()
				b.requireSuccess(b.RejectNewMessages(t.Context(), "orders", desiredQueue().Owner))
			}, same, broker.EnsureResult{}, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newTestEnv(t)
			row.before(b)
			got := b.ensureQueue(row.change)
			got.Enforcement = nil
			require.Equal(t, row.want, got)
			info := require.Call(b.inspector.GetQueueInfo("orders")).Succeeds(b.t)
			require.True(t, info.Paused == row.paused, "asynq reports paused: %t", info.Paused)
			require.Equal(t, "0", b.server.RunCLI("HEXISTS", "yardmaster:{orders}", "closed"))
		})
	}
}

// TestOwnership of package broker has the rules.
func TestQueueHasOneOwner(t *testing.T) {
	b := newTestEnv(t)
	b.ensureQueue()
	other := desiredQueue(func(q *broker.QueueConfig) { q.Owner.UID, q.Owner.Name = "2", "ns/other" })
	requireConflict := func() {
		t.Helper()
		_, err := b.EnsureQueue(t.Context(), other)
		for call, err := range map[string]error{
			"EnsureQueue": err, "RejectNewMessages": b.RejectNewMessages(t.Context(), "orders", other.Owner),
			"ReleaseOwnership": b.ReleaseOwnership(t.Context(), "orders", other.Owner), "DeleteQueue": b.DeleteQueue(t.Context(), "orders", other.Owner),
		} {
			require.True(t, broker.ClassOf(err) == broker.ClassConflict, "%s by another owner: %v", call, err)
		}
	}
	requireConflict()
	b.requireSuccess(b.inspector.DeleteQueue("orders", true)) // asynq has lost it
	requireConflict()
	b.ensureQueue()
	b.requireSuccess(b.ReleaseOwnership(t.Context(), "orders", desiredQueue().Owner))
	require.Call(b.EnsureQueue(t.Context(), other)).Succeeds(b.t)
}

// Any program may keep its queues on the same server.
func TestAQueueOfAnotherProgramIsLeftAloneUnlessItMayBeAdopted(t *testing.T) {
	b := newTestEnv(t)
	b.enqueueTask("x")
	owner := desiredQueue().Owner
	_, err := b.EnsureQueue(t.Context(), desiredQueue())
	requireClass(t, broker.ClassConflict, err)
	requireClass(t, broker.ClassNotFound, b.RejectNewMessages(t.Context(), "orders", owner))
	requireClass(t, broker.ClassConflict, b.DeleteQueue(t.Context(), "orders", owner))
	b.ensureQueue(func(q *broker.QueueConfig) { q.AdoptsUnowned = true })
	require.Equal(t, 1, b.readStats().Ready)
}

func TestEnforcementReportsFieldsThatAsynqIgnores(t *testing.T) {
	b := newTestEnv(t)
	for name, row := range map[string]struct {
		change func(*broker.QueueConfig)
		field  broker.QueueField
		want   broker.Enforcer
	}{
		"the lease of asynq": {func(*broker.QueueConfig) {}, broker.FieldLease, broker.EnforcedByBroker},
		"another lease":      {func(q *broker.QueueConfig) { q.Lease = time.Minute }, broker.FieldLease, broker.NotEnforced},
		"one priority":       {func(*broker.QueueConfig) {}, broker.FieldPriorities, broker.EnforcedByBroker},
		"two priorities": {func(q *broker.QueueConfig) {
			q.Priorities = append(q.Priorities, broker.Priority{Name: "low", Weight: 1})
		}, broker.FieldPriorities, broker.NotEnforced},
		"maxInFlight":                     {func(q *broker.QueueConfig) { q.MaxInFlight = 5 }, broker.FieldMaxInFlight, broker.NotEnforced},
		"maxBacklog":                      {func(q *broker.QueueConfig) { q.MaxBacklog = 5 }, broker.FieldMaxBacklog, broker.NotEnforced},
		"a rate limit":                    {func(q *broker.QueueConfig) { q.RateLimit = &broker.RateLimit{Limit: 1, Per: time.Second, Burst: 1} }, broker.FieldRateLimit, broker.NotEnforced},
		"maxAge":                          {func(q *broker.QueueConfig) { q.MaxAge = time.Hour }, broker.FieldMaxAge, broker.NotEnforced},
		"the size of results":             {func(*broker.QueueConfig) {}, broker.FieldResultsSize, broker.NotEnforced},
		"retry":                           {func(*broker.QueueConfig) {}, broker.FieldRetry, broker.EnforcedByWorker},
		"paused":                          {func(*broker.QueueConfig) {}, broker.FieldPaused, broker.EnforcedByBroker},
		"the dead letter limits of asynq": {func(*broker.QueueConfig) {}, broker.FieldDeadLetter, broker.EnforcedByBroker},
		"fewer dead letters":              {func(q *broker.QueueConfig) { q.DeadLetter.MaxEntries = 5 }, broker.FieldDeadLetter, broker.NotEnforced},
		"a shorter dead letter retention": {func(q *broker.QueueConfig) { q.DeadLetter.Retention = time.Hour }, broker.FieldDeadLetter, broker.NotEnforced},
	} {
		t.Run(name, func(t *testing.T) {
			got := b.ensureQueue(row.change).Enforcement[row.field]
			require.True(t, got.By == row.want && (got.By != broker.NotEnforced || got.Message != ""), "%+v, want %s", got, row.want)
		})
	}
}

func TestListRequeueMoveAndPurgeDeadLetters(t *testing.T) {
	b := newTestEnv(t)
	var sent []string
	for n := range 5 {
		sent = append(sent, b.enqueueTask(fmt.Sprint(n), asynq.MaxRetry(0)))
	}
	for _, d := range b.fetchTasks(5) {
		b.requireSuccess(d.Bury(t.Context(), "no such customer", 1))
	}
	deadLetters := b.DeadLetters("orders")
	list := require.Call(deadLetters.List(t.Context(), 0, 3)).Succeeds(b.t)
	rest := require.Call(deadLetters.List(t.Context(), list[2].ID, 3)).Succeeds(b.t)
	require.True(t, len(list) == 3 && len(rest) == 2, "%d, then %d", len(list), len(rest))
	var got []string
	for i, letter := range append(list, rest...) {
		got = append(got, strings.TrimPrefix(letter.MessageID, "asynq:{orders}:t:"))
		isOfJob := letter.Error == "no such customer" && letter.Attempts == 1 && slices.Equal(letter.Headers["Asynq-Type"], []string{"bill"})
		require.True(t, isOfJob && time.Since(letter.DeadLetteredTime) <= 10*time.Minute, "%+v", letter)
		require.True(t, i == 0 || letter.ID > list[0].ID, "%d comes after %d", letter.ID, list[0].ID)
	}
	slices.Sort(got)
	slices.Sort(sent)
	require.Equal(t, sent, got)

	n := require.Call(deadLetters.Requeue(t.Context(), broker.RequeueOptions{Until: time.Now()})).Succeeds(b.t)
	n += require.Call(deadLetters.Requeue(t.Context(), broker.RequeueOptions{After: rest[0].ID})).Succeeds(b.t)
	n += require.Call(deadLetters.Requeue(t.Context(), broker.RequeueOptions{Number: 1})).Succeeds(b.t)
	f := b.readStats()
	require.True(t, n == 2 && f.Ready == 2 && f.DeadLetters == 3, "%d requeued: %+v", n, f)
	again := b.fetchTasks(1)[0]
	history, err := again.History(t.Context())
	require.True(t, history.Attempt() == 1 && err == nil && len(again.Message().Payload) == 1, "history %+v: %v", history, err)

	_, err = deadLetters.Move(t.Context(), "other", 0)
	requireClass(t, broker.ClassNotFound, err)
	b.ensureQueue(func(q *broker.QueueConfig) { q.Name = "other" })
	n = require.Call(deadLetters.Move(t.Context(), "other", 2)).Succeeds(b.t)
	moved := require.Call(b.DeadLetters("other").List(t.Context(), 0, 0)).Succeeds(b.t)
	require.True(t, n == 2 && len(moved) == 2 && b.readStats().DeadLetters == 1, "%d moved: %+v", n, moved)
	for _, letter := range moved {
		isOfJob := letter.Error == "no such customer" && letter.Attempts == 1 && len(letter.Headers) == 1
		require.True(t, isOfJob && strings.HasPrefix(letter.MessageID, "asynq:{orders}:t:"), "%+v", letter)
	}

	first := moved[0].ID
	for _, want := range []int{1, 0} {
		n, err := b.DeadLetters("other").DeleteSelected(t.Context(), func(l *broker.DeadLetter) bool { return l.ID == first })
		require.True(t, err == nil && n == want, "deleted %d, want %d: %v", n, want, err)
	}
	b.requireSuccess(deadLetters.Purge(t.Context()))
	require.Equal(t, 0, b.readStats().DeadLetters)
	_, err = b.DeadLetters("nowhere").List(t.Context(), 0, 1)
	requireClass(t, broker.ClassNotFound, err)
}

func TestInterruptedRequeueDoesNotDuplicateTask(t *testing.T) {
	b := newTestEnv(t)
	id := b.enqueueTask("x")
	b.requireSuccess(b.inspector.ArchiveTask("orders", id))
	a := b.DeadLetters("orders").(*archivedTasks)
	// An earlier attempt enqueued the copy and was interrupted.
	b.requireSuccess(a.forEachDeadLetter(t.Context(), &broker.RequeueOptions{}, func(archived *archivedTask, letter *asynq.TaskInfo) error {
		return a.enqueueCopy(t.Context(), asynq.NewTask("bill", []byte("x")), "orders", copyTaskID(archived), letter)
	}))
	n := require.Call(a.Requeue(t.Context(), broker.RequeueOptions{})).Succeeds(b.t)
	f := b.readStats()
	require.True(t, n == 1 && f.Ready == 1 && f.DeadLetters == 0, "%d requeued: %+v", n, f)
}

func TestDeleteQueue(t *testing.T) {
	t.Parallel()
	owner := desiredQueue().Owner
	reject := func(b *testEnv) { b.requireSuccess(b.RejectNewMessages(t.Context(), "orders", owner)) }
	fillQueue := func(b *testEnv) {
		b.ensureQueue()
		b.enqueueTask("x")
		b.enqueueTask("y", asynq.ProcessIn(time.Hour))
		b.requireSuccess(b.inspector.ArchiveTask("orders", b.enqueueTask("z")))
	}
	for name, row := range map[string]struct {
		before      func(*testEnv)
		wantDeleted bool
	}{
		"a missing queue needs no deletion":                     {func(*testEnv) {}, true},
		"all tasks are deleted with the queue":                  {fillQueue, true},
		"a queue that rejects messages and is empty is deleted": {func(b *testEnv) { b.ensureQueue(); reject(b) }, true},
		"an interrupted deletion continues with the record of the owner": {func(b *testEnv) {
			b.ensureQueue()
			reject(b)
			b.requireSuccess(b.inspector.DeleteQueue("orders", true))
		}, true},
		"a queue that rejects messages is kept until it is empty": {func(b *testEnv) { fillQueue(b); reject(b) }, false},
		"a queue with an active task is kept":                     {func(b *testEnv) { fillQueue(b); b.fetchTasks(1) }, false},
		"active tasks of lost workers do not prevent the deletion": {func(b *testEnv) {
			fillQueue(b)
			b.server.RunCLI("RPOPLPUSH", "asynq:{orders}:pending", "asynq:{orders}:active")
			b.server.RunCLI("ZADD", "asynq:{orders}:lease", fmt.Sprint(time.Now().Unix()-100), b.server.RunCLI("LINDEX", "asynq:{orders}:active", "0"))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newTestEnv(t)
			row.before(b)
			err := b.DeleteQueue(t.Context(), "orders", owner)
			require.True(t, (err == nil) == row.wantDeleted, "%v", err)
			left := b.server.RunCLI("--scan", "--pattern", "*{orders}*")
			var kept []string
			for name := range strings.FieldsSeq(left) {
				if strings.Contains(name, ":t:") || strings.HasPrefix(name, "yardmaster") {
					kept = append(kept, name)
				}
			}
			require.True(t, (!row.wantDeleted || len(kept) == 0) && (row.wantDeleted || len(kept) != 0), "left: %s", left)
			_, err = b.Stats(t.Context(), "orders")
			require.True(t, !row.wantDeleted || broker.ClassOf(err) == broker.ClassNotFound, "stats: %v", err)
		})
	}
}

func TestWaitForMessageReturnsWithFirstTask(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		before, then func(*testEnv)
		within       time.Duration
	}{
		"a pending task":                 {func(b *testEnv) { b.enqueueTask("x") }, func(*testEnv) {}, time.Second},
		"a task enqueued while waiting":  {func(*testEnv) {}, func(b *testEnv) { b.enqueueTask("x") }, time.Second},
		"a scheduled task":               {func(b *testEnv) { b.enqueueTask("x", asynq.ProcessIn(2*time.Second)) }, func(*testEnv) {}, 4 * time.Second},
		"a task scheduled while waiting": {func(*testEnv) {}, func(b *testEnv) { b.enqueueTask("x", asynq.ProcessIn(time.Second)) }, pollInterval + 3*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wait := func() error {
				b := startTestEnv(t)
				b.ensureQueue()
				row.before(b)
				start := time.Now()
				returned := make(chan error, 1)
				go func() { returned <- b.WaitForMessage(t.Context(), "orders") }()
				// The call may not be waiting yet, which makes no difference.
				row.then(b)
				b.requireSuccess(<-returned)
				took := time.Since(start)
				require.Equal(t, 1, b.readStats().Ready)
				if took > row.within {
					return fmt.Errorf("it returned after %s, want %s", took, row.within)
				}
				return nil
			}
			require.NoError(t, poll.UntilNil(t.Context(), wait)) // a busy machine can be late
		})
	}
}

func TestWaitForMessageFetchesNothingAndEndsWithContext(t *testing.T) {
	b := newTestEnv(t)
	b.ensureQueue()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, b.WaitForMessage(ctx, "orders"), context.DeadlineExceeded)
	first, second := b.enqueueTask("1"), b.enqueueTask("2")
	b.requireSuccess(b.WaitForMessage(t.Context(), "orders"))
	found := require.Call(b.waitForPending(t.Context(), "orders", time.Minute)).Succeeds(b.t)
	list := b.server.RunCLI("LRANGE", "asynq:{orders}:pending", "0", "-1")
	require.True(t, found && list == second+"\n"+first, "%t, %s", found, list)
	requireClass(t, broker.ClassNotFound, b.WaitForMessage(t.Context(), "nowhere"))
	b.server.Stop()
	requireClass(t, broker.ClassUnreachable, b.WaitForMessage(t.Context(), "orders"))
}

func TestAQueueThatMustExistIsNotCreated(t *testing.T) {
	b := newTestEnv(t)
	mustExist := func(q *broker.QueueConfig) { q.MustExist = true }
	_, err := b.EnsureQueue(t.Context(), desiredQueue(mustExist))
	requireClass(t, broker.ClassNotFound, err)
	_, err = b.Stats(t.Context(), "orders")
	requireClass(t, broker.ClassNotFound, err)
	_, err = b.Subscribe(t.Context(), "orders")
	requireClass(t, broker.ClassNotFound, err)
	_, err = b.EnsureQueue(t.Context(), desiredQueue(func(q *broker.QueueConfig) { q.Name = "A" }))
	requireClass(t, broker.ClassInvalid, err)
	b.ensureQueue()
	outcome := b.ensureQueue(mustExist)
	require.True(t, !outcome.Created && !outcome.Updated, "an existing queue: %+v", outcome)
}

func TestTheIDOfAJobSurvivesRequeueingAndIsThatOfItsTaskUnlessAHeaderHasAnother(t *testing.T) {
	t.Parallel()
	for title, row := range map[string]struct {
		headers map[string]string
		want    string
	}{
		"the task":               {nil, "order~5"},
		"a header":               {map[string]string{broker.JobIDHeader: "order-6"}, "order-6"},
		"a header without an ID": {map[string]string{broker.JobIDHeader: ""}, "order~5"},
	} {
		t.Run(title, func(t *testing.T) {
			b := newTestEnv(t)
			b.ensureQueue()
			b.ensureQueue(func(q *broker.QueueConfig) { q.Name = "other" })
			task := asynq.NewTaskWithHeaders("bill", []byte("x"), row.headers)
			require.Call(b.client.Enqueue(task, asynq.Queue("orders"), asynq.TaskID("order~5"))).Succeeds(b.t)
			for _, when := range []string{"first delivery", "requeued", "requeued twice"} {
				d := b.fetchTasks(1)[0]
				m := d.Message()
				require.True(t, m.ID == row.want && m.Kind == "bill" && len(m.Headers) == 1, "%s: %+v, want the ID %q", when, m, row.want)
				b.requireSuccess(d.Bury(t.Context(), "bad", 1))
				if when == "requeued twice" {
					break
				}
				n := require.Call(b.DeadLetters("orders").Requeue(t.Context(), broker.RequeueOptions{})).Succeeds(b.t)
				require.True(t, n == 1, "%d requeued", n)
			}
			require.Call(b.DeadLetters("orders").Move(t.Context(), "other", 0)).Succeeds(b.t)
			require.Call(b.DeadLetters("other").Requeue(t.Context(), broker.RequeueOptions{})).Succeeds(b.t)
			requeued := require.Call(b.inspector.ListPendingTasks("other")).Succeeds(b.t)
			require.Equal(t, 1, len(requeued))
			require.Equal(t, row.want, jobID(requeued[0].Headers, requeued[0].ID))
		})
	}
}

func TestAServerThatMayEvictTasksIsReported(t *testing.T) {
	b := newTestEnv(t)
	for policy, want := range map[string]string{"noeviction": "", "allkeys-lru": "allkeys-lru", "volatile-ttl": "volatile-ttl"} {
		b.server.RunCLI("CONFIG", "SET", "maxmemory-policy", policy)
		require.Equal(t, want, b.ensureQueue().EvictionPolicy)
	}
	b.server.RunCLI("ACL", "SETUSER", "default", "-info") // it does not report its policy
	require.Equal(t, "", b.ensureQueue().EvictionPolicy)
}

// A task of a group would wait without end for an aggregator.
func TestATaskOfAGroupBecomesADeadLetterThatSaysWhy(t *testing.T) {
	b := newTestEnv(t)
	b.enqueueTask("x", asynq.Group("nightly"))
	b.enqueueTask("y")
	require.Equal(t, 1, require.Call(b.Rescue(t.Context(), "orders")).Succeeds(t).Rescued)
	letters := require.Call(b.DeadLetters("orders").List(t.Context(), 0, 10)).Succeeds(t)
	require.True(t, len(letters) == 1 && letters[0].Attempts == 0, "dead letters %+v", letters)
	require.Contains(t, letters[0].Error, `the group "nightly"`)
	require.Equal(t, 1, require.Call(b.DeadLetters("orders").Requeue(t.Context(), broker.RequeueOptions{})).Succeeds(t))
	stats := b.readStats()
	require.True(t, stats.Ready == 2 && stats.DeadLetters == 0, "after requeueing: %+v", stats)
}
