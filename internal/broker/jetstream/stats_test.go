package jetstream

import (
	"context"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

// No worker fetches messages here, as in a pool without workers.
func TestARetryThatIsDueIsReportedAndAwaited(t *testing.T) {
	t.Parallel()
	e := startWithQueue(t, withPriorities("high", "low"))
	publish(t, e, "yardmaster.orders.ready.low", "x")
	publish(t, e, "yardmaster.orders.ready.low", "y")
	failed := time.Now()
	require.NoError(t, fetchOne(t, e, "orders", "low").Retry(t.Context(), time.Second, "it failed"))
	require.NoError(t, fetchOne(t, e, "orders", "low").Retry(t.Context(), time.Hour, "it failed"))
	require.NoError(t, e.WaitForMessage(t.Context(), "orders"))
	elapsed := time.Since(failed)
	require.True(t, elapsed >= 900*time.Millisecond && elapsed <= 5*time.Minute, "it waited %s for a retry after a second", elapsed)
	for range 3 { // the server keeps the message
		f := readStats(t, e, "orders")
		require.True(t, f.RetryDue && f.InFlight == 2 && f.Ready == 0, "when it is due: %+v", f)
	}
	d := fetchOne(t, e, "orders", "low")
	got := string(d.Message().Payload)
	require.True(t, got == "x" && attemptNumber(t, d) == 2, "attempt %d of %q, want the second of x", attemptNumber(t, d), got)
	f := readStats(t, e, "orders")
	require.True(t, !f.RetryDue, "after its delivery: %+v", f)
}

func TestALostLeaseIsReportedLikeARetry(t *testing.T) {
	t.Parallel()
	e := startWithQueue(t, func(q *broker.QueueConfig) { q.Lease = broker.MinLease })
	publish(t, e, "yardmaster.orders.ready.default", "x")
	fetchOne(t, e, "orders", "default")
	require.NoError(t, e.WaitForMessage(t.Context(), "orders"))
	f := readStats(t, e, "orders")
	require.True(t, f.RetryDue, "after the lease: %+v", f)
}

func TestARetryOfAPausedQueueIsNotDue(t *testing.T) {
	t.Parallel()
	e := startEngine(t)
	q := ordersQueue()
	ensureQueue(t, e, q)
	publish(t, e, "yardmaster.orders.ready.default", "x")
	d := fetchOne(t, e, "orders", "default")
	q.Paused = true
	ensureQueue(t, e, q)
	require.NoError(t, d.Retry(t.Context(), 0, "it failed"))
	f := readStats(t, e, "orders")
	require.True(t, !f.RetryDue && f.InFlight == 1, "while the queue is paused: %+v", f)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, e.WaitForMessage(ctx, "orders"), context.DeadlineExceeded)
}

// The requests for retries that are due must not keep messages from workers that wait for some.
func TestWorkersReceiveMessagesWhileARetryIsAwaited(t *testing.T) {
	t.Parallel()
	e := startWithQueue(t)
	publish(t, e, "yardmaster.orders.ready.default", "x")
	require.NoError(t, fetchOne(t, e, "orders", "default").Retry(t.Context(), time.Hour, "it failed"))
	waiting := make(chan error, 1)
	go func() { waiting <- e.WaitForMessage(t.Context(), "orders") }()
	poll.Until(t, "the server to have a waiting request", func() bool { return consumerInfo(t, e, "default").NumWaiting > 0 })
	publish(t, e, "yardmaster.orders.ready.default", "y")
	require.Equal(t, "y", string(fetchOne(t, e, "orders", "default").Message().Payload))
	require.NoError(t, <-waiting)
}

// Someone deletes the consumer of a priority while messages wait, run, are delayed and wait for a retry.
func TestMessagesOfADeletedConsumerWait(t *testing.T) {
	t.Parallel()
	e := startEngine(t)
	queue := ordersQueue(withPriorities("high", "low"))
	ensureQueue(t, e, queue)
	for range 10 {
		publish(t, e, "yardmaster.orders.ready.high", "x")
		publish(t, e, "yardmaster.orders.ready.low", "y")
	}
	require.NoError(t, fetchOne(t, e, "orders", "low").Retry(t.Context(), time.Hour, "it failed"))
	fetchOne(t, e, "orders", "high")
	fetchOne(t, e, "orders", "low")
	before := readStats(t, e, "orders")
	hasAll := before.RetriesInFlight && !before.RetryDue && len(before.Missing) == 0
	require.True(t, hasAll && before.Ready == 17 && before.InFlight == 3, "before: %+v", before)
	require.NoError(t, e.js.DeleteConsumer(t.Context(), "yardmaster_orders", "low"))
	deleted := readStats(t, e, "orders")
	require.Equal(t, []string{"low"}, deleted.Missing)
	isWaiting := deleted.Ready == 19 && deleted.InFlight == 1 && deleted.Delayed == 0 && !deleted.OldestReadyTime.IsZero()
	require.True(t, isWaiting, "after the deletion: %+v", deleted)
	require.NoError(t, e.WaitForMessage(t.Context(), "orders")) // a pool without workers is activated
	got, err := e.Rescue(t.Context(), "orders")
	require.True(t, err == nil && got.Rescued == 0 && got.Stranded == nil, "rescued %+v: %v", got, err)
	ensureQueue(t, e, queue)
	after := readStats(t, e, "orders")
	require.True(t, after.Ready == 19 && after.InFlight == 1 && len(after.Missing) == 0, "once it is created again: %+v", after)
}
