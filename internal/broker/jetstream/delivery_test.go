package jetstream

import (
	"cmp"
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/test/natstest"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

func attemptNumber(t *testing.T, d broker.Delivery) int {
	t.Helper()
	history := require.Call(d.History(t.Context())).Succeeds(t)
	return history.Attempt()
}

func TestMessagesBeforeTheFirstRequestAreIgnored(t *testing.T) {
	t.Parallel()
	consumer := &pullConsumer{}
	for _, header := range []nats.Header{nil, {"Status": {"404"}}} {
		consumer.handleMessage(&nats.Msg{Subject: "_INBOX.1", Reply: "$JS.ACK.s.c.1.1.1.1.0", Header: header, Sub: &nats.Subscription{}})
	}
}

// Each row is how deliveries of one message ended. The entry is deleted when the message is settled.
func TestTheHistoryOfAMessageSurvivesItsDeliveries(t *testing.T) {
	e := startWithQueue(t)
	publish(t, e, "yardmaster.orders.ready.default", "x")
	want := broker.History{}
	type end = func(broker.Delivery) error
	lose := func(d broker.Delivery) error { return d.Lose(t.Context(), 0, "") }
	retry := func(d broker.Delivery) error { return d.Retry(t.Context(), 0, "") }
	release := func(d broker.Delivery) error { return d.Release(t.Context(), 0) }
	start := func(alone bool, then end) end {
		return func(d broker.Delivery) error { return cmp.Or(d.MarkStart(t.Context(), alone), then(d)) }
	}
	for i, end := range []struct {
		end   end
		after func(broker.History) broker.History
	}{
		{lose, func(h broker.History) broker.History { h.Lost++; return h }},
		{retry, broker.History.AfterFailure},
		{start(false, retry), broker.History.AfterFailure},
		{start(false, lose), func(h broker.History) broker.History { return h.AfterStart(false) }},
		{start(true, release), broker.History.AfterRelease},
		{start(true, start(true, lose)), func(h broker.History) broker.History { return h.AfterStart(true) }},
	} {
		d := fetchOne(t, e, "orders", "default")
		got, err := d.History(t.Context())
		require.True(t, err == nil && got == want, "before end %d: %+v, %v, want %+v", i, got, err, want)
		require.NoError(t, end.end(d))
		want = end.after(want)
	}
	d := fetchOne(t, e, "orders", "default")
	require.Equal(t, want, require.Call(d.History(t.Context())).Succeeds(t))
	require.NoError(t, d.Ack(t.Context(), true))
	poll.Until(t, "the entry to be deleted", func() bool {
		entry, err := e.readLast(t.Context(), "KV_yardmaster_orders", storedKeySubject("orders", "returned.1"))
		return err == nil && entry != nil && entry.isDeletedKey()
	})
	publish(t, e, "yardmaster.orders.ready.default", "y")
	require.NoError(t, fetchOne(t, e, "orders", "default").Retry(t.Context(), 8*24*time.Hour, ""))
	entry := require.Call(e.readLast(t.Context(), "KV_yardmaster_orders", storedKeySubject("orders", "returned.2"))).Succeeds(t)
	require.Equal(t, (15 * 24 * time.Hour).String(), entry.headers().Get("Nats-TTL")) // a week longer than the message waits
}

func TestUnconfirmedLeaseExtensionFails(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	e := connectTo(t, s)
	ensureQueue(t, e, ordersQueue())
	publish(t, e, "yardmaster.orders.ready.default", "x")
	d := fetchOne(t, e, "orders", "default")
	s.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err := d.ExtendLease(ctx)
	require.True(t, broker.ClassOf(err) == broker.ClassUnreachable, "got %v", err)
}

func withRateLimit(perSecond, burst int) func(*broker.QueueConfig) {
	return func(q *broker.QueueConfig) {
		q.RateLimit = &broker.RateLimit{Limit: perSecond, Per: time.Second, Burst: burst}
	}
}

func openRateLimiter(t *testing.T, e *Engine) broker.RateLimiter {
	t.Helper()
	source := require.Call(e.Subscribe(t.Context(), "orders")).Succeeds(t)
	l := require.Call(source.RateLimiter(t.Context())).Succeeds(t)
	t.Cleanup(l.Stop)
	return l
}

func TestChangedRateLimitAppliesImmediately(t *testing.T) {
	e := startWithQueue(t, func(q *broker.QueueConfig) { q.RateLimit = &broker.RateLimit{Limit: 1, Per: time.Hour, Burst: 1} })
	l := openRateLimiter(t, e)
	require.Call(l.Reserve(t.Context(), 1)).Succeeds(t)
	start := time.Now()
	ensureQueue(t, e, ordersQueue(withRateLimit(1000, 1)))
	poll.Until(t, "the new limit to be known", func() bool { return l.(*rateLimiter).currentLimit.Load().Limit == 1000 })
	_, err := l.Reserve(t.Context(), 1)
	require.True(t, err == nil && time.Since(start) <= 10*time.Minute, "the next job starts after %s: %v", time.Since(start), err)
	ensureQueue(t, e, ordersQueue())
	poll.Until(t, "the limit to be removed", func() bool { return !l.IsLimited() })
	slots, err := l.Reserve(t.Context(), 1000)
	require.True(t, err == nil && len(slots) == 1000 && !slots[999].After(time.Now()), "%d slots without a limit: %v", len(slots), err)
}

func TestInvalidBucketContentIsIgnored(t *testing.T) {
	e := startWithQueue(t, withRateLimit(100, 1))
	bucket := require.Call(e.js.KeyValue(t.Context(), bucketName("orders"))).Succeeds(t)
	l := openRateLimiter(t, e)
	for _, text := range []string{"x", `{"next":"9999-01-01T00:00:00Z"}`, "null"} {
		require.Call(bucket.PutString(t.Context(), rateStateKey, text)).Succeeds(t)
		start := time.Now()
		_, err := l.Reserve(t.Context(), 1)
		require.True(t, err == nil && time.Since(start) <= time.Minute, "%s: the next job starts after %s: %v", text, time.Since(start), err)
	}
	require.Call(bucket.PutString(t.Context(), rateLimitKey, `{"limit":-5}`)).Succeeds(t)
	slots, err := l.Reserve(t.Context(), 1)
	require.True(t, err == nil && len(slots) == 1, "%v: %v", slots, err)
}

// No worker fetches messages here, as in a pool without workers.
func TestARetryThatIsDueIsReportedAndAwaited(t *testing.T) {
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
	e := startWithQueue(t, func(q *broker.QueueConfig) { q.Lease = broker.MinLease })
	publish(t, e, "yardmaster.orders.ready.default", "x")
	fetchOne(t, e, "orders", "default")
	require.NoError(t, e.WaitForMessage(t.Context(), "orders"))
	f := readStats(t, e, "orders")
	require.True(t, f.RetryDue, "after the lease: %+v", f)
}

func TestARetryOfAPausedQueueIsNotDue(t *testing.T) {
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
