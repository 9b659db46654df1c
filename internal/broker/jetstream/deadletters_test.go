package jetstream

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats.go"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/test/require"
)

// openConsumer opens a consumer like a worker. The caller stops it.
func openConsumer(t *testing.T, e *Engine, queue, priority string) broker.Consumer {
	t.Helper()
	source, err := e.Subscribe(t.Context(), queue)
	require.NoError(t, err)
	consumer, err := source.Consumer(t.Context(), priority)
	require.NoError(t, err)
	return consumer
}

// fetchOne fetches one message of the queue like a worker.
func fetchOne(t *testing.T, e *Engine, queue, priority string) broker.Delivery {
	t.Helper()
	consumer := openConsumer(t, e, queue, priority)
	defer consumer.Stop()
	var fetched broker.Delivery
	_, err := consumer.Next(t.Context(), time.Minute, func(d broker.Delivery) { fetched = d })
	require.NoError(t, err)
	require.True(t, fetched != nil, "no message of priority %s", priority)
	return fetched
}

func listDeadLetters(t *testing.T, e *Engine, queue string) []broker.DeadLetter {
	t.Helper()
	all, err := e.DeadLetters(queue).List(t.Context(), 0, 100)
	require.NoError(t, err)
	return all
}

// requeueOne requeues the only dead letter of a queue.
func requeueOne(t *testing.T, e *Engine, queue string) {
	t.Helper()
	n, err := e.DeadLetters(queue).Requeue(t.Context(), broker.RequeueOptions{})
	require.True(t, err == nil && n == 1, "requeued %d: %v", n, err)
}

func publishWithHeaders(t *testing.T, e *Engine, subject, payload string, header nats.Header) {
	t.Helper()
	_, err := e.js.PublishMsg(t.Context(), &nats.Msg{Subject: subject, Data: []byte(payload), Header: header})
	require.NoError(t, err)
}

func TestDeadLetterKeepsMessageAndRequeuesAsNew(t *testing.T) {
	t.Parallel()
	e := startWithQueue(t, withPriorities("high", "low"))
	poison := "\x00\xff poison"
	sent := time.Now()
	publishWithHeaders(t, e, "yardmaster.orders.ready.low", poison, nats.Header{"Tenant": {"a", "b"}, "Nats-Msg-Id": {"once"}})

	d := fetchOne(t, e, "orders", "low")
	for range 2 { // again, as after a lost answer
		require.NoError(t, d.Bury(t.Context(), "cannot be\nread\r\nNats-Rollup: all", 5))
	}
	want := []broker.DeadLetter{{
		ID: 1, Payload: []byte(poison), Headers: map[string][]string{"Tenant": {"a", "b"}, "Nats-Msg-Id": {"once"}}, Priority: "low",
		Error: "cannot be read  Nats-Rollup: all", Attempts: 5, MessageID: "yardmaster_orders/1",
	}}
	got := listDeadLetters(t, e, "orders")
	require.Equal(t, want, got, cmpopts.IgnoreFields(broker.DeadLetter{}, "SentTime", "DeadLetteredTime"))
	inOrder := !got[0].SentTime.Before(sent) && !got[0].DeadLetteredTime.Before(got[0].SentTime)
	require.True(t, inOrder, "sent %s, dead-lettered %s", got[0].SentTime, got[0].DeadLetteredTime)
	f := readStats(t, e, "orders")
	require.True(t, f.DeadLetters == 1 && f.Ready+f.InFlight+f.Delayed == 0, "stats %+v", f)

	requeueOne(t, e, "orders")
	again := fetchOne(t, e, "orders", "low")
	history, err := again.History(t.Context())
	require.True(t, err == nil && history.Attempt() == 1, "history %+v: %v", history, err)
	require.Equal(t, map[string][]string{"Tenant": {"a", "b"}, "Nats-Msg-Id": {"once"}}, again.Message().Headers)
	require.Equal(t, poison, string(again.Message().Payload))
	require.Equal(t, 0, readStats(t, e, "orders").DeadLetters)
}

// Other producers than the client can send a message that is as large as the server accepts.
func TestAMessageOfAnySizeBecomesADeadLetter(t *testing.T) {
	t.Parallel()
	e := startWithQueue(t, withPriorities("low"))
	archive := ordersQueue(withPriorities("low"))
	archive.Name = "archive"
	ensureQueue(t, e, archive)
	limit, reason := int(e.nc.MaxPayload()), strings.Repeat("because ", 200)
	for title, row := range map[string]struct {
		payload    int
		header     nats.Header
		wantsWhole bool
	}{
		"with space for the error":           {limit - deadLetterBytes, nil, true},
		"with space for a short error":       {limit - 600, nil, true},
		"without space for the headers":      {limit - 50, nil, false},
		"of the largest size":                {limit, nil, false},
		"with headers of the largest size":   {10, nats.Header{"A": {strings.Repeat("x", 60<<10)}}, true},
		"almost without space for a payload": {limit - 60<<10 - 50, nats.Header{"A": {strings.Repeat("x", 60<<10)}}, false},
	} {
		t.Run(title, func(t *testing.T) {
			payload := strings.Repeat("p", row.payload)
			publishWithHeaders(t, e, "yardmaster.orders.ready.low", payload, row.header)
			delivery := fetchOne(t, e, "orders", "low")
			require.NoError(t, delivery.Bury(t.Context(), reason, 3))
			letters := listDeadLetters(t, e, "orders")
			require.True(t, len(letters) == 1 && letters[0].Attempts == 3, "%d dead letters", len(letters))
			kept, reported := string(letters[0].Payload), letters[0].Error
			isWhole := kept == payload
			require.True(t, isWhole == row.wantsWhole && kept != "" && strings.HasPrefix(payload, kept), "%d of %d bytes", len(kept), len(payload))
			isReported := strings.Contains(reported, "because") && strings.Contains(reported, "payload truncated from") != isWhole
			require.True(t, isReported, "error %q", reported)
			// A part of a job does not run, and does not keep other dead letters from running.
			publishWithHeaders(t, e, "yardmaster.orders.ready.low", "small", nil)
			require.NoError(t, fetchOne(t, e, "orders", "low").Bury(t.Context(), reason, 1))
			n, err := e.DeadLetters("orders").Requeue(t.Context(), broker.RequeueOptions{})
			for range n {
				require.NoError(t, fetchOne(t, e, "orders", "low").Ack(t.Context(), true))
			}
			if isWhole {
				require.True(t, n == 2 && err == nil, "%d requeued, error %v", n, err)
				return
			}
			require.True(t, n == 1 && errors.As(err, new(*broker.KeptDeadLetterError)), "%d requeued, error %v", n, err)
			n, err = e.DeadLetters("orders").Move(t.Context(), "archive", 0)
			require.True(t, n == 1 && err == nil, "%d moved, error %v", n, err)
			n, err = e.DeadLetters("archive").Requeue(t.Context(), broker.RequeueOptions{})
			require.True(t, n == 0 && broker.ClassOf(err) == broker.ClassInvalid, "%d requeued, error %v", n, err)
			edited := []byte("a whole payload")
			n, err = e.DeadLetters("archive").Requeue(t.Context(), broker.RequeueOptions{Payload: &edited})
			require.True(t, n == 1 && err == nil, "%d requeued with a payload, error %v", n, err)
			require.NoError(t, fetchOne(t, e, "archive", "low").Ack(t.Context(), true))
		})
	}
}

func buryNext(t *testing.T, e *Engine, payloads ...string) {
	t.Helper()
	for _, payload := range payloads {
		publish(t, e, "yardmaster.orders.ready.default", payload)
		require.NoError(t, fetchOne(t, e, "orders", "default").Bury(t.Context(), "bad", 1))
	}
}

func payloadsOf(letters []broker.DeadLetter) string {
	var all []string
	for _, letter := range letters {
		all = append(all, string(letter.Payload))
	}
	return strings.Join(all, " ")
}

func TestOnlyRequestedNumberOfDeadLettersIsHandled(t *testing.T) {
	t.Parallel()
	e := startWithQueue(t)
	other := ordersQueue(func(q *broker.QueueConfig) { q.Name = "other" })
	ensureQueue(t, e, other)
	buryNext(t, e, "a", "b", "c", "d")
	dead := e.DeadLetters("orders")

	page, err := dead.List(t.Context(), 1, 2)
	require.True(t, err == nil && payloadsOf(page) == "b c", "after 1, at most 2: %s, %v", payloadsOf(page), err)
	n, err := dead.Requeue(t.Context(), broker.RequeueOptions{Number: 1})
	require.True(t, err == nil && n == 1, "requeued %d: %v", n, err)
	require.Equal(t, "b c d", payloadsOf(listDeadLetters(t, e, "orders")))
	n, err = dead.Move(t.Context(), "other", 2)
	require.True(t, err == nil && n == 2, "moved %d: %v", n, err)
	moved := listDeadLetters(t, e, "other")
	require.Equal(t, [2]string{"d", "b c"}, [2]string{payloadsOf(listDeadLetters(t, e, "orders")), payloadsOf(moved)})
	require.True(t, moved[0].Error == "bad" && moved[0].MessageID == "yardmaster_orders/2", "moved %+v", moved)
	isB := func(l *broker.DeadLetter) bool { return string(l.Payload) == "b" }
	for _, want := range []int{1, 0} {
		n, err := e.DeadLetters("other").DeleteSelected(t.Context(), isB)
		require.True(t, err == nil && n == want, "deleted %d, want %d: %v", n, want, err)
		require.Equal(t, "c", payloadsOf(listDeadLetters(t, e, "other")))
	}
	err = dead.Purge(t.Context())
	require.True(t, err == nil && readStats(t, e, "orders").DeadLetters == 0, "purged: %v, %+v", err, readStats(t, e, "orders"))
	_, err = dead.Move(t.Context(), "nowhere", 0)
	require.True(t, broker.ClassOf(err) == broker.ClassNotFound, "moving to a missing queue: %v", err)
	_, err = dead.Move(t.Context(), "orders", 0)
	require.True(t, broker.ClassOf(err) == broker.ClassInvalid, "moving to the same queue: %v", err)
}

func TestRequeueToFullQueueKeepsDeadLetters(t *testing.T) {
	t.Parallel()
	e := startWithQueue(t, withMaxBacklog(1))
	buryNext(t, e, "a")
	publish(t, e, "yardmaster.orders.ready.default", "x")
	n, err := e.DeadLetters("orders").Requeue(t.Context(), broker.RequeueOptions{})
	require.True(t, err != nil && n == 0, "requeued %d", n)
	require.Equal(t, "a", payloadsOf(listDeadLetters(t, e, "orders")))
}

func TestDeadLetterOfRemovedPriorityIsRequeuedToAnother(t *testing.T) {
	t.Parallel()
	e := startWithQueue(t, withPriorities("high", "default"))
	buryNext(t, e, "a")
	ensureQueue(t, e, ordersQueue(withPriorities("high")))
	requeueOne(t, e, "orders")
	got := fetchOne(t, e, "orders", "high").Message().Payload
	require.True(t, string(got) == "a", "requeued %s, want a", got)
}

func FuzzHeaderTextIsOneLineOfBoundedLength(f *testing.F) {
	for _, seed := range []string{"it broke", "a\r\nb: c", "\x00\xff", strings.Repeat("é", 600), strings.Repeat("\xff", 2000)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := headerText(text, maxErrorLength)
		require.True(t, len(got) <= maxErrorLength && !strings.ContainsAny(got, "\r\n\x00") && utf8.ValidString(got), "%q of %d bytes", got, len(got))
	})
}
