package jetstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/bounded"
	"github.com/yardmaster/yardmaster/test/natstest"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

var aliceOwner = broker.QueueOwner{UID: "1", Name: "ns/alice", Cluster: "c"}

// ordersQueue is a queue that belongs to alice.
func ordersQueue(changes ...func(*broker.QueueConfig)) broker.QueueConfig {
	q := broker.DefaultQueueConfig("orders")
	q.Owner = aliceOwner
	for _, change := range changes {
		change(&q)
	}
	return q
}

func withPriorities(names ...string) func(*broker.QueueConfig) {
	return func(q *broker.QueueConfig) {
		q.Priorities = nil
		for i, name := range names {
			q.Priorities = append(q.Priorities, broker.Priority{Name: name, Weight: len(names) - i})
		}
	}
}

func withMaxBacklog(n int64) func(*broker.QueueConfig) {
	return func(q *broker.QueueConfig) { q.MaxBacklog = n }
}

// boundedDial is how the operator connects.
var boundedDial = bounded.NewDialer(bounded.Options{AllowLocal: true}).For("team")

func connectTo(t *testing.T, s *natstest.Server) *Engine {
	t.Helper()
	return connectWith(t, broker.Credentials{URL: s.ClientURL()})
}

// connectWith connects until the end of the test, as the operator does.
func connectWith(t *testing.T, c broker.Credentials) *Engine {
	t.Helper()
	c.Name, c.Dial = t.Name(), boundedDial
	e := require.Call(Connect(t.Context(), c)).Succeeds(t)
	t.Cleanup(e.Disconnect)
	return e.(*Engine)
}

// startEngine runs the test in parallel to others.
func startEngine(t *testing.T) *Engine {
	t.Helper()
	t.Parallel()
	return connectTo(t, natstest.Start(t))
}

// startWithQueue returns an engine whose server has the queue orders.
func startWithQueue(t *testing.T, changes ...func(*broker.QueueConfig)) *Engine {
	t.Helper()
	e := startEngine(t)
	ensureQueue(t, e, ordersQueue(changes...))
	return e
}

func ensureQueue(t *testing.T, e *Engine, q broker.QueueConfig) broker.EnsureResult {
	t.Helper()
	return answered(t, func(ctx context.Context) (broker.EnsureResult, error) { return e.EnsureQueue(ctx, q) })
}

func deleteQueue(t *testing.T, e *Engine) {
	t.Helper()
	answered(t, func(ctx context.Context) (any, error) { return nil, e.DeleteQueue(ctx, "orders", aliceOwner) })
}

// answered returns the answer to a request. A cluster may drop a request without an answer, for example if its leader cannot propose the
// change, so that a request without an answer is repeated, as the operator does after actionTimeout.
func answered[T any](t *testing.T, request func(context.Context) (T, error)) (answer T) {
	t.Helper()
	poll.Until(t, "an answer of the servers", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var err error
		answer, err = request(ctx)
		isAnswered := !errors.Is(err, context.DeadlineExceeded)
		if isAnswered {
			require.NoError(t, err)
		}
		return isAnswered
	})
	return answer
}

// withinAMinute returns a context for requests to servers on a busy machine. Without a deadline the client gives them five seconds.
func withinAMinute(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func publish(t *testing.T, e *Engine, subject, payload string, options ...jetstream.PublishOpt) {
	t.Helper()
	require.Call(e.js.Publish(t.Context(), subject, []byte(payload), options...)).Succeeds(t)
}

func streamConfigOf(t *testing.T, e *Engine, stream string) jetstream.StreamConfig {
	t.Helper()
	s := answered(t, func(ctx context.Context) (jetstream.Stream, error) { return e.js.Stream(ctx, stream) })
	return s.CachedInfo().Config
}

// changeStream changes a stream as someone else than the engine does.
func changeStream(t *testing.T, e *Engine, stream string, change func(*jetstream.StreamConfig)) {
	t.Helper()
	c := streamConfigOf(t, e, stream)
	change(&c)
	answered(t, func(ctx context.Context) (jetstream.Stream, error) { return e.js.UpdateStream(ctx, c) })
}

func readStats(t *testing.T, e *Engine, queue string) broker.QueueStats {
	t.Helper()
	return require.Call(e.Stats(t.Context(), queue)).Succeeds(t)
}

func TestEnsureQueueAppliesEachChange(t *testing.T) {
	t.Parallel()
	type check = func(*testing.T, *Engine) bool
	consumer := func(name string, holds func(*jetstream.ConsumerInfo) bool) check {
		return func(t *testing.T, e *Engine) bool { return holds(consumerInfo(t, e, name)) }
	}
	stream := func(name string, holds func(jetstream.StreamConfig) bool) check {
		return func(t *testing.T, e *Engine) bool { return holds(streamConfigOf(t, e, name)) }
	}
	for name, row := range map[string]struct {
		change    func(*broker.QueueConfig)
		isApplied check
	}{
		"lease":       {func(q *broker.QueueConfig) { q.Lease = time.Minute }, consumer("default", func(c *jetstream.ConsumerInfo) bool { return c.Config.AckWait == time.Minute })},
		"maxInFlight": {func(q *broker.QueueConfig) { q.MaxInFlight = 3 }, consumer("default", func(c *jetstream.ConsumerInfo) bool { return c.Config.MaxAckPending == 3 })},
		"pause":       {func(q *broker.QueueConfig) { q.Paused = true }, consumer("default", func(c *jetstream.ConsumerInfo) bool { return c.Paused })},
		"age":         {func(q *broker.QueueConfig) { q.MaxAge = time.Hour }, stream("yardmaster_orders", func(c jetstream.StreamConfig) bool { return c.MaxAge == time.Hour })},
		"dead letters": {
			func(q *broker.QueueConfig) { q.DeadLetter.MaxEntries, q.DeadLetter.Retention = 5, time.Hour },
			stream("yardmaster_orders_dead", func(c jetstream.StreamConfig) bool { return c.MaxMsgs == 5 && c.MaxAge == time.Hour }),
		},
		"another priority": {withPriorities("default", "low"), consumer("low", func(c *jetstream.ConsumerInfo) bool { return c.Config.Metadata[metaWeight] == "1" })},
		"rate limit": {withRateLimit(7, 2), func(t *testing.T, e *Engine) bool {
			bucket := require.Call(e.js.KeyValue(t.Context(), bucketName("orders"))).Succeeds(t)
			entry, err := bucket.Get(t.Context(), rateLimitKey)
			return err == nil && string(entry.Value()) == `{"limit":7,"per":1000000000,"burst":2}`
		}},
	} {
		// A change of the spec is applied with both drift policies: it is not drift.
		for _, drift := range []broker.DriftPolicy{broker.DriftCorrect, broker.DriftWarn} {
			t.Run(name+", "+string(drift), func(t *testing.T) {
				e := startEngine(t)
				q := ordersQueue(withDrift(drift))
				require.True(t, ensureQueue(t, e, q).Created, "the queue is not created")
				row.change(&q)
				outcome := ensureQueue(t, e, q)
				require.True(t, outcome.Updated && len(outcome.Drift) == 0 && row.isApplied(t, e), "the change is not applied: %+v", outcome)
				again := ensureQueue(t, e, q)
				require.True(t, !again.Created && !again.Updated && len(again.Drift) == 0, "again: %+v", again)
			})
		}
	}
}

func consumerInfo(t *testing.T, e *Engine, name string) *jetstream.ConsumerInfo {
	t.Helper()
	c := require.Call(e.js.Consumer(t.Context(), "yardmaster_orders", name)).Succeeds(t)
	return c.CachedInfo()
}

func TestDriftIsReportedAndCorrected(t *testing.T) {
	t.Parallel()
	changeManually := func(t *testing.T, e *Engine) {
		t.Helper()
		changeStream(t, e, "yardmaster_orders", func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour })
		lease := consumerInfo(t, e, "default").Config
		lease.AckWait = 7 * time.Second
		require.Call(e.js.UpdateConsumer(t.Context(), "yardmaster_orders", lease)).Succeeds(t)
		require.Call(e.js.PauseConsumer(t.Context(), "yardmaster_orders", "default", indefinitePauseTime)).Succeeds(t)
	}
	want := []string{
		"stream yardmaster_orders: max_age is 1h0m0s, should be 0s",
		"consumer default of yardmaster_orders: ack_wait is 7s, should be 30s",
		"consumer default of yardmaster_orders: paused is true, should be false",
	}
	for name, row := range map[string]struct {
		drift     broker.DriftPolicy
		corrected bool
		wantNext  []string
	}{
		"Correct reports and corrects it": {broker.DriftCorrect, true, nil},
		"Warn reports and keeps it":       {broker.DriftWarn, false, want},
	} {
		t.Run(name, func(t *testing.T) {
			e := startEngine(t)
			q := ordersQueue(withDrift(row.drift))
			ensureQueue(t, e, q)
			changeManually(t, e)
			outcome := ensureQueue(t, e, q)
			require.Equal(t, want, notifies(outcome))
			require.True(t, outcome.Corrected == row.corrected && !outcome.Updated, "%+v", outcome)
			require.Equal(t, row.wantNext, notifies(ensureQueue(t, e, q)))
		})
	}
}

func notifies(o broker.EnsureResult) []string {
	var all []string
	for _, difference := range o.Drift {
		all = append(all, difference.String())
	}
	return all
}

func TestMissingObjectIsCreatedAgain(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(context.Context, *Engine) error{
		"stream yardmaster_orders_dead": func(ctx context.Context, e *Engine) error { return e.js.DeleteStream(ctx, "yardmaster_orders_dead") },
		"bucket yardmaster_orders":      func(ctx context.Context, e *Engine) error { return e.js.DeleteKeyValue(ctx, "yardmaster_orders") },
		"consumer default of yardmaster_orders": func(ctx context.Context, e *Engine) error {
			return e.js.DeleteConsumer(ctx, "yardmaster_orders", "default")
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := startEngine(t)
			q := ordersQueue(withDrift(broker.DriftWarn))
			ensureQueue(t, e, q)
			require.NoError(t, lose(t.Context(), e))
			require.Equal(t, []string{name + ": exists is false, should be true"}, notifies(ensureQueue(t, e, q)))
			again := notifies(ensureQueue(t, e, q))
			require.True(t, again == nil, "drift of the next call: %v", again)
		})
	}
}

func TestQueueHasOneOwner(t *testing.T) {
	bob := broker.QueueOwner{UID: "2", Name: "ns/bob", Cluster: "c"}
	mallory := broker.QueueOwner{UID: "3", Name: "other/mallory", Cluster: "c"}
	by := func(owner broker.QueueOwner) broker.QueueConfig {
		return ordersQueue(func(q *broker.QueueConfig) { q.Owner = owner })
	}
	e := startEngine(t)
	requireConflict := func(err error, found broker.QueueOwner) {
		t.Helper()
		conflict := (*broker.OwnerConflictError)(nil)
		isConflict := errors.As(err, &conflict) && conflict.Owner == found && broker.ClassOf(err) == broker.ClassConflict
		require.True(t, isConflict, "got %v, want a conflict with %+v", err, found)
	}
	calls := map[string]func(context.Context, string, broker.QueueOwner) error{
		"RejectNewMessages": e.RejectNewMessages, "ReleaseOwnership": e.ReleaseOwnership, "DeleteQueue": e.DeleteQueue,
	}
	ensureQueue(t, e, by(aliceOwner))
	_, err := e.EnsureQueue(t.Context(), by(bob))
	requireConflict(err, aliceOwner)
	for _, call := range calls {
		requireConflict(call(t.Context(), "orders", bob), aliceOwner)
	}
	replacing := by(bob)
	replacing.ReplacesOwnerUID = aliceOwner.UID
	ensureQueue(t, e, replacing) // alice is known to be deleted
	_, err = e.EnsureQueue(t.Context(), by(aliceOwner))
	requireConflict(err, bob)

	require.NoError(t, e.ReleaseOwnership(t.Context(), "orders", bob))
	adopting := by(mallory)
	adopting.AdoptsUnowned = true
	_, err = e.EnsureQueue(t.Context(), adopting)
	requireConflict(err, bob.Released())
	for _, call := range calls {
		requireConflict(call(t.Context(), "orders", mallory), bob.Released())
	}
	ensureQueue(t, e, by(aliceOwner)) // in the namespace that released the queue
	require.NoError(t, e.DeleteQueue(t.Context(), "orders", aliceOwner))
	_, err = e.Stats(t.Context(), "orders")
	require.True(t, broker.ClassOf(err) == broker.ClassNotFound, "the queue still exists: %v", err)
	require.NoError(t, e.DeleteQueue(t.Context(), "orders", aliceOwner))
}

func TestAStreamWithoutAnOwnerIsLeftAloneUnlessItMayBeAdopted(t *testing.T) {
	e := startEngine(t)
	config := jetstream.StreamConfig{Name: "yardmaster_orders", Subjects: []string{"yardmaster.orders.ready.default"}, Retention: jetstream.WorkQueuePolicy}
	_, err := e.js.CreateStream(t.Context(), config)
	require.NoError(t, err)
	for name, err := range map[string]error{
		"EnsureQueue":       func() error { _, err := e.EnsureQueue(t.Context(), ordersQueue()); return err }(),
		"RejectNewMessages": e.RejectNewMessages(t.Context(), "orders", aliceOwner),
		"ReleaseOwnership":  e.ReleaseOwnership(t.Context(), "orders", aliceOwner),
		"DeleteQueue":       e.DeleteQueue(t.Context(), "orders", aliceOwner),
	} {
		require.True(t, broker.ClassOf(err) == broker.ClassConflict, "%s: %v", name, err)
	}
	ensureQueue(t, e, ordersQueue(func(q *broker.QueueConfig) { q.AdoptsUnowned = true }))
}

// Under drift policy Warn, the record of an owner would otherwise be drift, and stay as it is.
func TestAnUpgradeRecordsTheClusterOfTheOwner(t *testing.T) {
	e := startEngine(t)
	q := ordersQueue(withDrift(broker.DriftWarn))
	before := q
	before.Owner.Cluster = ""
	ensureQueue(t, e, before)
	result := ensureQueue(t, e, q)
	require.True(t, result.Updated && len(result.Drift) == 0, "%+v", result)
	require.Equal(t, aliceOwner, ownerFromMetadata(streamConfigOf(t, e, "yardmaster_orders").Metadata))
	again := ensureQueue(t, e, q)
	require.True(t, !again.Updated, "updated again: %+v", again)
}

func TestAnInvalidQueueAndAStreamWithAnotherRetentionAreRefused(t *testing.T) {
	e := startEngine(t)
	_, err := e.EnsureQueue(t.Context(), ordersQueue(func(q *broker.QueueConfig) { q.Name = "a.>" }))
	require.True(t, broker.ClassOf(err) == broker.ClassInvalid && strings.Contains(err.Error(), `name is "a.>"`), "got %v", err)
	require.Call(e.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "yardmaster_orders", Subjects: []string{"x"}})).Succeeds(t)
	_, err = e.EnsureQueue(t.Context(), ordersQueue(func(q *broker.QueueConfig) { q.AdoptsUnowned = true }))
	isNamed := broker.ClassOf(err) == broker.ClassInvalid && strings.Contains(err.Error(), "its retention is Limits, must be WorkQueue")
	require.True(t, isNamed, "got %v", err)
}

func TestMaxBacklogRejectsMessages(t *testing.T) {
	e := startEngine(t)
	outcome := ensureQueue(t, e, ordersQueue(withMaxBacklog(2)))
	require.Equal(t, broker.EnforcedByBroker, outcome.Enforcement[broker.FieldMaxBacklog].By)
	publish(t, e, "yardmaster.orders.ready.default", "1")
	publish(t, e, "yardmaster.orders.ready.default", "2")
	_, err := e.js.Publish(t.Context(), "yardmaster.orders.ready.default", nil)
	require.True(t, err != nil, "a full queue accepts messages")
	ensureQueue(t, e, ordersQueue()) // without maxBacklog
	publish(t, e, "yardmaster.orders.ready.default", "3")
	ensureQueue(t, e, ordersQueue(withMaxBacklog(2))) // of which the queue has more
	_, err = e.js.Publish(t.Context(), "yardmaster.orders.ready.default", nil)
	require.True(t, err != nil, "a queue that got maxBacklog later accepts messages")
}

func TestDelayedMessageBecomesReadyWhenDue(t *testing.T) {
	e := startWithQueue(t)
	due := time.Now().Add(2 * time.Second).Truncate(time.Second) // schedules have no fractions of a second
	publish(t, e, "yardmaster.orders.delayed.one", "later", jetstream.WithScheduleAt(due),
		jetstream.WithScheduleTarget("yardmaster.orders.due.default.one"))
	publish(t, e, "yardmaster.orders.delayed.two", "much later", jetstream.WithScheduleAt(time.Now().Add(time.Hour)),
		jetstream.WithScheduleTarget("yardmaster.orders.due.default.two"))
	f := readStats(t, e, "orders")
	require.True(t, f.Delayed == 2 && f.Ready == 0 && f.OldestReadyTime.IsZero() || !time.Now().Before(due), "at first: %+v", f)
	require.NoError(t, e.WaitForMessage(t.Context(), "orders"))
	// The server deletes a delayed message after the queue has stored it, so for a moment both streams have it.
	poll.Until(t, "the delayed message to be moved", func() bool { return readStats(t, e, "orders").Delayed == 1 })
	f = readStats(t, e, "orders")
	require.True(t, f.Ready == 1 && !f.OldestReadyTime.Before(due), "when one is due: %+v", f)
}

func TestWaitForMessageReturnsWhenAMessageIsThereArrivesOrArrivedWhileItWasDisconnected(t *testing.T) {
	s := natstest.Start(t)
	e := connectTo(t, s)
	ensureQueue(t, e, ordersQueue())
	waiting := func() chan error {
		done := make(chan error, 1)
		go func() { done <- e.WaitForMessage(t.Context(), "orders") }()
		return done
	}
	// waitUntilListening waits until the call has read the queue: a request that a stop of the server interrupts fails.
	waitUntilListening := func() {
		t.Helper()
		poll.Until(t, "the call to be waiting", func() bool {
			stacks := make([]byte, 1<<20)
			stacks = stacks[:runtime.Stack(stacks, true)]
			return bytes.Contains(stacks, []byte("jetstream.(*Engine).waitForChange("))
		})
	}
	publish(t, e, "yardmaster.orders.ready.default", "x")
	require.NoError(t, <-waiting())

	purgeStream(t, e)
	done := waiting() // an idle queue is not read again before
	waitUntilListening()
	publish(t, e, "yardmaster.orders.ready.default", "x")
	require.NoError(t, <-done)

	purgeStream(t, e)
	done = waiting()
	waitUntilListening()
	s.Stop()
	s.Restart()
	publish(t, connectTo(t, s), "yardmaster.orders.ready.default", "x")
	require.NoError(t, <-done)

	purgeStream(t, e)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, e.WaitForMessage(ctx, "orders"), context.Canceled)
}

func purgeStream(t *testing.T, e *Engine) {
	t.Helper()
	stream := require.Call(e.js.Stream(t.Context(), "yardmaster_orders")).Succeeds(t)
	require.NoError(t, stream.Purge(t.Context()))
}

func TestRemovedPriorityIsDeletedOnceEmpty(t *testing.T) {
	t.Parallel()
	for _, drift := range []broker.DriftPolicy{broker.DriftCorrect, broker.DriftWarn} {
		t.Run("drift "+string(drift), func(t *testing.T) {
			e := startEngine(t)
			ensureQueue(t, e, ordersQueue(withPriorities("high", "low"), withDrift(drift)))
			publish(t, e, "yardmaster.orders.ready.low", "x")
			q := ordersQueue(withPriorities("high"), withDrift(drift), func(q *broker.QueueConfig) { q.Paused, q.Lease = true, time.Minute })
			require.Equal(t, []string{"low"}, ensureQueue(t, e, q).RetiringPriorities)
			low := consumerInfo(t, e, "low") // workers still take its messages
			require.True(t, low.Paused && low.Config.AckWait == time.Minute, "the removed priority has another lease, or is not paused: %+v", low)
			q.Paused = false
			ensureQueue(t, e, q)
			_, err := e.js.Publish(t.Context(), "yardmaster.orders.ready.low", nil)
			require.ErrorIs(t, err, jetstream.ErrNoStreamResponse)
			require.NoError(t, fetchOne(t, e, "orders", "low").Ack(t.Context(), true))
			require.Equal(t, 0, len(ensureQueue(t, e, q).RetiringPriorities))
			_, err = e.js.Consumer(t.Context(), "yardmaster_orders", "low")
			require.True(t, isNotFound(err), "its consumer still exists: %v", err)
			_, err = openConsumer(t, e, "orders", "low").Next(t.Context(), time.Minute, nil)
			require.True(t, err != nil, "a priority that does not exist has an answer")
		})
	}
}

func TestQueueThatRejectsMessagesDrains(t *testing.T) {
	e := startWithQueue(t)
	publish(t, e, "yardmaster.orders.ready.default", "x")
	publish(t, e, "yardmaster.orders.delayed.one", "later", jetstream.WithScheduleAt(time.Now().Add(time.Second)),
		jetstream.WithScheduleTarget("yardmaster.orders.due.default.one"))
	require.NoError(t, e.RejectNewMessages(t.Context(), "orders", aliceOwner))
	_, err := e.js.Publish(t.Context(), "yardmaster.orders.ready.default", nil)
	require.ErrorIs(t, err, jetstream.ErrNoStreamResponse)
	require.Equal(t, []string{"x", "later"}, receiveAll(t, e, "orders", 2))
	f := readStats(t, e, "orders")
	require.True(t, f.Ready+f.InFlight+f.Delayed == 0, "left: %+v", f)
}

func TestAQueueThatMustExistIsNotCreated(t *testing.T) {
	e := startEngine(t)
	q := ordersQueue()
	q.MustExist = true
	_, err := e.EnsureQueue(t.Context(), q)
	require.True(t, broker.ClassOf(err) == broker.ClassNotFound, "a missing queue: %v", err)
	_, err = e.Stats(t.Context(), q.Name)
	require.True(t, broker.ClassOf(err) == broker.ClassNotFound, "it was created: %v", err)
	ensureQueue(t, e, ordersQueue())
	outcome := ensureQueue(t, e, q)
	require.True(t, !outcome.Created && !outcome.Updated, "an existing queue: %+v", outcome)
}

// DeleteQueue can be killed after each of its requests. What is left must still be a queue with an owner and messages.
func TestAnInterruptedDeletionCanBeContinued(t *testing.T) {
	t.Parallel()
	parts := []string{"KV_yardmaster_orders", "yardmaster_orders_dead"}
	for deleted := range len(parts) + 1 {
		t.Run(fmt.Sprintf("%d parts deleted", deleted), func(t *testing.T) {
			e := startWithQueue(t)
			publish(t, e, "yardmaster.orders.ready.default", "x")
			for _, part := range parts[:deleted] {
				require.NoError(t, e.js.DeleteStream(t.Context(), part))
			}
			require.NoError(t, e.RejectNewMessages(t.Context(), "orders", aliceOwner))
			stats := readStats(t, e, "orders")
			require.True(t, stats.Ready == 1 && stats.DeadLetters == 0, "stats %+v", stats)
			require.NoError(t, e.DeleteQueue(t.Context(), "orders", aliceOwner))
			_, err := e.js.Stream(t.Context(), "yardmaster_orders")
			require.True(t, isNotFound(err), "its messages are left: %v", err)
		})
	}
}

func FuzzSplitByWeightUsesTotalAndGivesEachAShare(f *testing.F) {
	f.Add(10, 1, 1, 1)
	f.Add(3, 100, 1, 1)
	f.Add(1000, 7, 2, 1)
	f.Fuzz(func(t *testing.T, total, a, b, c int) {
		within := func(n, least, most int) int { return least + int(uint(n)%uint(most-least+1)) }
		a, b, c, total = within(a, 1, 100), within(b, 1, 100), within(c, 1, 100), within(total, 3, 10_000)
		parts, weights := splitByWeight(total, []int{a, b, c}), []int{a, b, c}
		sum := 0
		for i, part := range parts {
			sum += part
			share := float64(total*weights[i]) / float64(a+b+c)
			require.True(t, part >= 1 && float64(part) <= max(share+1, 1), "%d of %d for weight %d of %v", part, total, weights[i], weights)
		}
		require.True(t, sum == total, "%v adds up to %d, not %d", parts, sum, total)
	})
}
