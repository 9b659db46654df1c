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
		{func(d broker.Delivery) error { return cmp.Or(d.MarkStart(t.Context(), false), d.Retry(t.Context(), 0, "")) }, broker.History.AfterFailure},
		{func(d broker.Delivery) error {
			return cmp.Or(d.MarkStart(t.Context(), false), d.Lose(t.Context(), 0, ""))
		}, func(h broker.History) broker.History { return h.AfterStart(false) }},
		{func(d broker.Delivery) error { return cmp.Or(d.MarkStart(t.Context(), true), d.Release(t.Context(), 0)) }, broker.History.AfterRelease},
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
