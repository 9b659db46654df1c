package jetstream

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/test/require"
)

// buryAndRequeue makes a dead letter of a message and requeues it.
func buryAndRequeue(t *testing.T, e *Engine, d broker.Delivery) broker.Delivery {
	t.Helper()
	require.NoError(t, d.Bury(t.Context(), "bad", 1))
	requeueOne(t, e, "orders")
	return fetchOne(t, e, "orders", "default")
}

func TestTheIDOfAJobIsThatOfItsProducerAndSurvivesRetriesAndRequeueing(t *testing.T) {
	t.Parallel()
	for title, row := range map[string]struct {
		headers nats.Header
		want    string
	}{
		"the header":                                  {nats.Header{broker.JobIDHeader: {"order-5"}}, "order-5"},
		"the header in another spelling":              {nats.Header{"yardmaster-job-id": {"order-5"}}, "order-5"},
		"Nats-Msg-Id":                                 {nats.Header{"Nats-Msg-Id": {"order-5"}}, "order-5"},
		"both: the header":                            {nats.Header{broker.JobIDHeader: {"order-5"}, "Nats-Msg-Id": {"once"}}, "order-5"},
		"none: the first sequence number":             {nats.Header{"Tenant": {"a"}}, "1"},
		"an ID that is too long: the sequence number": {nats.Header{broker.JobIDHeader: {strings.Repeat("x", 300)}}, "1"},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			e := startWithQueue(t)
			publishWithHeaders(t, e, "yardmaster.orders.ready.default", "x", row.headers)
			requireID := func(when string, d broker.Delivery) {
				t.Helper()
				require.True(t, d.Message().ID == row.want, "%s: the ID is %q, want %q", when, d.Message().ID, row.want)
			}
			d := fetchOne(t, e, "orders", "default")
			requireID("first delivery", d)
			require.NoError(t, d.Retry(t.Context(), 0, "it failed"))
			d = fetchOne(t, e, "orders", "default")
			requireID("after a retry", d)
			d = buryAndRequeue(t, e, d)
			requireID("after requeueing", d)
			d = buryAndRequeue(t, e, d)
			requireID("after requeueing twice", d)
			history, err := d.History(t.Context())
			require.True(t, err == nil && history.Attempt() == 1, "history %+v: %v", history, err)
			ids := d.Message().Headers[broker.JobIDHeader]
			require.True(t, ids == nil, "the handler sees the header %q", ids)
		})
	}
}

// Both queues have a message with the sequence number 1.
func TestTheIDOfAMovedJobIsNotThatOfAnotherInItsNewQueue(t *testing.T) {
	t.Parallel()
	for title, row := range map[string]struct {
		headers nats.Header
		want    string
	}{
		"the producer chose an ID": {nats.Header{broker.JobIDHeader: {"order-5"}}, "order-5"},
		"the producer chose none":  {nil, "yardmaster_orders/1"},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			e := startWithQueue(t)
			ensureQueue(t, e, ordersQueue(func(q *broker.QueueConfig) { q.Name = "other" }))
			publishWithHeaders(t, e, "yardmaster.orders.ready.default", "x", row.headers)
			d := buryAndRequeue(t, e, fetchOne(t, e, "orders", "default"))
			require.NoError(t, d.Bury(t.Context(), "bad", 1))
			n, err := e.DeadLetters("orders").Move(t.Context(), "other", 0)
			require.True(t, err == nil && n == 1, "moved %d: %v", n, err)
			requeueOne(t, e, "other")
			require.Equal(t, row.want, fetchOne(t, e, "other", "default").Message().ID)
		})
	}
}

// The server would reject a dead letter whose Nats-Expected-Stream names another stream.
func TestNatsHeadersOfTheProducerAreKeptAndInstructTheServerOnlyOnce(t *testing.T) {
	t.Parallel()
	e := startWithQueue(t)
	sent := nats.Header{
		"Nats-Msg-Id": {"once"}, "Nats-Expected-Stream": {"yardmaster_orders"}, "Nats-Custom": {"a", "b"}, "nats-lower": {"c"},
		broker.KindHeader: {"bill"}, "Yardmaster-Error": {"forged"}, "Yardmaster-Producer-Nats-Forged": {"forged"},
	}
	want := map[string][]string{
		"Nats-Msg-Id": {"once"}, "Nats-Expected-Stream": {"yardmaster_orders"}, "Nats-Custom": {"a", "b"}, "nats-lower": {"c"},
		broker.KindHeader: {"bill"},
	}
	publishWithHeaders(t, e, "yardmaster.orders.ready.default", "x", sent)
	d := fetchOne(t, e, "orders", "default")
	require.Equal(t, want, d.Message().Headers)
	require.NoError(t, d.Bury(t.Context(), "bad", 1))
	require.Equal(t, want, listDeadLetters(t, e, "orders")[0].Headers)
	requeueOne(t, e, "orders")
	message := fetchOne(t, e, "orders", "default").Message()
	require.Equal(t, want, message.Headers)
	require.Equal(t, "bill", message.Kind)
}

// When a delayed message is due, the server removes the headers with its instructions, and Nats-Msg-Id.
func TestADelayedJobKeepsItsIDAndHasNoHeadersOfTheServer(t *testing.T) {
	t.Parallel()
	e := startWithQueue(t)
	publishWithHeaders(t, e, "yardmaster.orders.delayed.order-5", "x", nats.Header{
		"Nats-Schedule": {"@at " + time.Now().Add(time.Second).UTC().Format(time.RFC3339Nano)}, "Nats-Schedule-Target": {"yardmaster.orders.due.default.order-5"},
		broker.JobIDHeader: {"order-5"}, "Tenant": {"a"},
	})
	message := fetchOne(t, e, "orders", "default").Message()
	require.Equal(t, map[string][]string{"Tenant": {"a"}}, message.Headers)
	require.Equal(t, "order-5", message.ID)
}
