package jetstream

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/test/natstest"
)

func attemptNumber(t *testing.T, d broker.Delivery) int {
	t.Helper()
	n, err := d.AttemptNumber(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestMessagesBeforeTheFirstRequestAreIgnored(t *testing.T) {
	defer func() {
		if failure := recover(); failure != nil {
			t.Errorf("the worker crashes: %v", failure)
		}
	}()
	consumer := &pullConsumer{}
	for _, header := range []nats.Header{nil, {"Status": {"404"}}} {
		consumer.handleMessage(&nats.Msg{Subject: "_INBOX.1", Reply: "$JS.ACK.s.c.1.1.1.1.0", Header: header, Sub: &nats.Subscription{}})
	}
}

func TestReleaseIsNotCountedAsAttempt(t *testing.T) {
	e := startEngine(t)
	ensureQueue(t, e, ordersQueue())
	publish(t, e, "yardmaster.orders.ready.default", "x")
	for range 3 {
		if err := fetchOne(t, e, "orders", "default").Release(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
	}
	d := fetchOne(t, e, "orders", "default")
	if got := attemptNumber(t, d); got != 1 {
		t.Errorf("after three releases it is attempt %d", got)
	}
	if err := d.Retry(t.Context(), 0, "it failed"); err != nil {
		t.Fatal(err)
	}
	d = fetchOne(t, e, "orders", "default")
	if got := attemptNumber(t, d); got != 2 {
		t.Errorf("after one attempt it is attempt %d", got)
	}
}

func TestRetryIsDeliveredAfterDelay(t *testing.T) {
	e := startEngine(t)
	ensureQueue(t, e, ordersQueue())
	publish(t, e, "yardmaster.orders.ready.default", "x")
	failed := time.Now()
	if err := fetchOne(t, e, "orders", "default").Retry(t.Context(), 500*time.Millisecond, "it failed"); err != nil {
		t.Fatal(err)
	}
	if f := readStats(t, e, "orders"); f.InFlight != 1 || f.Ready != 0 {
		t.Errorf("meanwhile: %+v", f)
	}
	fetchOne(t, e, "orders", "default")
	if after := time.Since(failed); after < 500*time.Millisecond {
		t.Errorf("it was delivered after %s", after)
	}
}

func TestExtendedLeaseHolds(t *testing.T) {
	e := startEngine(t)
	ensureQueue(t, e, ordersQueue(func(q *broker.QueueConfig) { q.Lease = broker.MinLease }))
	publish(t, e, "yardmaster.orders.ready.default", "x")
	d := fetchOne(t, e, "orders", "default")
	other := make(chan time.Time, 1)
	start := time.Now()
	go func() {
		fetchOne(t, e, "orders", "default") // waits
		other <- time.Now()
	}()
	for range 2 {
		time.Sleep(time.Second)
		if err := d.ExtendLease(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Ack(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	publish(t, e, "yardmaster.orders.ready.default", "y")
	if at := <-other; at.Sub(start) < 2*time.Second {
		t.Errorf("another worker got it after %s", at.Sub(start))
	}
}

func TestWasRemoved(t *testing.T) {
	e := startEngine(t)
	ensureQueue(t, e, ordersQueue())
	publish(t, e, "yardmaster.orders.ready.default", "x")
	d := fetchOne(t, e, "orders", "default")
	if removed, err := d.WasRemoved(t.Context()); removed || err != nil {
		t.Errorf("before: %t, %v", removed, err)
	}
	if err := d.Ack(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if removed, err := d.WasRemoved(t.Context()); !removed || err != nil {
		t.Errorf("after: %t, %v", removed, err)
	}
}

func TestUnconfirmedLeaseExtensionFails(t *testing.T) {
	s := natstest.Start(t)
	e := connectTo(t, s)
	ensureQueue(t, e, ordersQueue())
	publish(t, e, "yardmaster.orders.ready.default", "x")
	d := fetchOne(t, e, "orders", "default")
	s.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := d.ExtendLease(ctx); broker.ClassOf(err) != broker.ClassUnreachable {
		t.Errorf("got %v", err)
	}
}
