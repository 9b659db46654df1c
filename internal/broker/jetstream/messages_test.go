package jetstream

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/test/natstest"
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

func TestTheIDOfADelayedJobIsOneTokenOfItsSubject(t *testing.T) {
	t.Parallel()
	token := regexp.MustCompile(`^yardmaster\.orders\.delayed\.[^. *>]+$`)
	seen := map[string]string{}
	for _, id := range []string{"order-7", "ORDER_7", "a.b", "a.*", ">", "a/b", "a:b", "~YS5i", "-", "{}"} {
		subject := delayedSubject("orders", delayedToken(id))
		require.True(t, token.MatchString(subject) && seen[subject] == "", "ID %q: subject %s, which %q has too", id, subject, seen[subject])
		seen[subject] = id
	}
	require.Equal(t, "yardmaster.orders.delayed.order-7", delayedSubject("orders", delayedToken("order-7")))
	require.Equal(t, "yardmaster.orders.delayed.~YS5i", delayedSubject("orders", delayedToken("a.b")))
}

func TestARefusalOfTheServerIsClassified(t *testing.T) {
	t.Parallel()
	for title, row := range map[string]struct {
		err  jetstream.APIError
		want error
	}{
		"full":              {jetstream.APIError{Code: 503, ErrorCode: 10077, Description: "maximum messages exceeded"}, broker.ErrQueueFull},
		"full, by bytes":    {jetstream.APIError{Code: 503, ErrorCode: 10077, Description: "maximum bytes exceeded"}, broker.ErrQueueFull},
		"disk error":        {jetstream.APIError{Code: 503, ErrorCode: 10077, Description: "no space left on device"}, broker.ErrUnavailable},
		"out of storage":    {jetstream.APIError{Code: 500, ErrorCode: 10047, Description: "insufficient storage resources available"}, broker.ErrUnavailable},
		"limit of account":  {jetstream.APIError{Code: 400, ErrorCode: 10002, Description: "resource limits exceeded for account"}, broker.ErrUnavailable},
		"overloaded":        {jetstream.APIError{Code: 429, ErrorCode: 10167, Description: "too many requests"}, broker.ErrUnavailable},
		"message too large": {jetstream.APIError{Code: 400, ErrorCode: 10054, Description: "message size exceeds maximum allowed"}, broker.ErrPayloadTooLarge},
		"headers too large": {jetstream.APIError{Code: 400, ErrorCode: 10097, Description: "header size exceeds maximum allowed of 64k"}, broker.ErrPayloadTooLarge},
		"sealed":            {jetstream.APIError{Code: 400, ErrorCode: 10109, Description: "invalid operation on sealed stream"}, broker.ErrDraining},
		"anything else":     {jetstream.APIError{Code: 400, ErrorCode: 10060, Description: "expected stream does not match"}, broker.ErrInvalidJob},
	} {
		err := refusal(&row.err)
		require.True(t, errors.Is(err, row.want), "%s: %v, want %v", title, err, row.want)
	}
}

// A server whose limit was lowered sends its clients no new limit, and ends the connection of a client that exceeds the limit for good.
func TestAClientWhoseConnectionTheServerEndedReportsWhy(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	e := connectTo(t, server)
	ensureQueue(t, e, ordersQueue())
	lowered := server.Options().Clone()
	lowered.MaxPayload = 64 << 10
	require.NoError(t, server.ReloadOptions(lowered))
	for _, size := range []int{2 * 64 << 10, 1} {
		job := &broker.OutgoingJob{Queue: "orders", Payload: make([]byte, size)}
		_, err := e.Send(withinAMinute(t), job)
		many := e.SendMany(withinAMinute(t), "orders", []*broker.OutgoingJob{job})
		for _, err := range []error{err, many[0].Err} {
			failure := (*broker.SendError)(nil)
			require.ErrorContains(t, err, "Maximum Payload Violation")
			require.True(t, errors.As(err, &failure) && errors.Is(failure.Failure, broker.ErrUnavailable), "%d bytes: %v", size, err)
		}
	}
}

func TestAMessageHasOnlyTheHeadersThatItNeeds(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	delayed := []string{"Yardmaster-Job-Id", "Nats-Schedule", "Nats-Schedule-Target", "Nats-Expected-Last-Subject-Sequence"}
	for title, row := range map[string]struct {
		job    broker.OutgoingJob
		want   []string
		wantID bool
	}{
		"nothing set: the server assigns the ID": {broker.OutgoingJob{}, nil, false},
		"ID":                                     {broker.OutgoingJob{ID: "a", HasChosenID: true}, []string{"Nats-Msg-Id"}, true},
		"kind and timeout":                       {broker.OutgoingJob{Kind: "a", Timeout: time.Second}, []string{"Yardmaster-Kind", "Yardmaster-Timeout"}, false},
		"due in the past":                        {broker.OutgoingJob{DueTime: now}, nil, false},
		"delayed":                                {broker.OutgoingJob{DueTime: now.Add(1)}, delayed, true},
	} {
		row.job.Queue = "orders"
		message, id := outgoingMessage(&row.job, now)
		require.True(t, len(message.Header) == len(row.want) && (id != "") == row.wantID, "%s: ID %q, headers %v", title, id, message.Header)
		for _, name := range row.want {
			require.True(t, message.Header.Get(name) != "", "%s: no header %s in %v", title, name, message.Header)
		}
	}
}
