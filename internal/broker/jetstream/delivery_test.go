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
	history, err := d.History(t.Context())
	require.NoError(t, err)
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
	t.Parallel()
	e := startWithQueue(t)
	publish(t, e, "yardmaster.orders.ready.default", "x")
	want := broker.History{}
	for i, end := range []struct {
		end   func(broker.Delivery) error
		after func(broker.History) broker.History
	}{
		{func(d broker.Delivery) error { return d.Lose(t.Context(), 0, "") }, func(h broker.History) broker.History { h.Lost++; return h }},
		{func(d broker.Delivery) error { return d.Retry(t.Context(), 0, "") }, broker.History.AfterFailure},
		{func(d broker.Delivery) error {
			return cmp.Or(d.MarkStart(t.Context(), false), d.Retry(t.Context(), 0, ""))
		}, broker.History.AfterFailure},
		{func(d broker.Delivery) error {
			return cmp.Or(d.MarkStart(t.Context(), false), d.Lose(t.Context(), 0, ""))
		}, func(h broker.History) broker.History { return h.AfterStart(false) }},
		{func(d broker.Delivery) error {
			return cmp.Or(d.MarkStart(t.Context(), true), d.Release(t.Context(), 0))
		}, broker.History.AfterRelease},
		{func(d broker.Delivery) error {
			return cmp.Or(d.MarkStart(t.Context(), true), d.MarkStart(t.Context(), true), d.Lose(t.Context(), 0, ""))
		}, func(h broker.History) broker.History { return h.AfterStart(true) }},
	} {
		d := fetchOne(t, e, "orders", "default")
		got, err := d.History(t.Context())
		require.True(t, err == nil && got == want, "before end %d: %+v, %v, want %+v", i, got, err, want)
		require.NoError(t, end.end(d))
		want = end.after(want)
	}
	d := fetchOne(t, e, "orders", "default")
	got, err := d.History(t.Context())
	require.True(t, err == nil && got == want, "at last: %+v, %v, want %+v", got, err, want)
	require.NoError(t, d.Ack(t.Context(), true))
	poll.Until(t, "the entry to be deleted", func() bool {
		entry, err := e.readLast(t.Context(), "KV_yardmaster_orders", storedKeySubject("orders", "returned.1"))
		return err == nil && entry != nil && entry.isDeletedKey()
	})
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
	source, err := e.Subscribe(t.Context(), "orders")
	require.NoError(t, err)
	l, err := source.RateLimiter(t.Context())
	require.NoError(t, err)
	t.Cleanup(l.Stop)
	return l
}

func TestChangedRateLimitAppliesImmediately(t *testing.T) {
	t.Parallel()
	e := startWithQueue(t, func(q *broker.QueueConfig) { q.RateLimit = &broker.RateLimit{Limit: 1, Per: time.Hour, Burst: 1} })
	l := openRateLimiter(t, e)
	_, err := l.Reserve(t.Context(), 1)
	require.NoError(t, err)
	start := time.Now()
	ensureQueue(t, e, ordersQueue(withRateLimit(1000, 1)))
	poll.Until(t, "the new limit to be known", func() bool { return l.(*rateLimiter).currentLimit.Load().Limit == 1000 })
	_, err = l.Reserve(t.Context(), 1)
	require.True(t, err == nil && time.Since(start) <= 10*time.Minute, "the next job starts after %s: %v", time.Since(start), err)
	ensureQueue(t, e, ordersQueue())
	poll.Until(t, "the limit to be removed", func() bool { return !l.IsLimited() })
	slots, err := l.Reserve(t.Context(), 1000)
	require.True(t, err == nil && len(slots) == 1000 && !slots[999].After(time.Now()), "%d slots without a limit: %v", len(slots), err)
}

func TestInvalidBucketContentIsIgnored(t *testing.T) {
	t.Parallel()
	e := startWithQueue(t, withRateLimit(100, 1))
	bucket, err := e.js.KeyValue(t.Context(), bucketName("orders"))
	require.NoError(t, err)
	l := openRateLimiter(t, e)
	for _, text := range []string{"x", `{"next":"9999-01-01T00:00:00Z"}`, "null"} {
		_, err := bucket.PutString(t.Context(), rateStateKey, text)
		require.NoError(t, err)
		start := time.Now()
		_, err = l.Reserve(t.Context(), 1)
		require.True(t, err == nil && time.Since(start) <= time.Minute, "%s: the next job starts after %s: %v", text, time.Since(start), err)
	}
	_, err = bucket.PutString(t.Context(), rateLimitKey, `{"limit":-5}`)
	require.NoError(t, err)
	slots, err := l.Reserve(t.Context(), 1)
	require.True(t, err == nil && len(slots) == 1, "%v: %v", slots, err)
}
