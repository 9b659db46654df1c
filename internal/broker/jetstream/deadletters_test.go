package jetstream

import (
	"errors"
	"maps"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/test/natstest"
	"github.com/yardmaster/yardmaster/test/require"
)

// openConsumer opens a consumer like a worker. The caller stops it.
func openConsumer(t *testing.T, e *Engine, queue, priority string) broker.Consumer {
	t.Helper()
	source := require.Call(e.Subscribe(t.Context(), queue)).Succeeds(t)
	return require.Call(source.Consumer(t.Context(), priority)).Succeeds(t)
}

// fetchOne fetches one message of the queue like a worker.
func fetchOne(t *testing.T, e *Engine, queue, priority string) broker.Delivery {
	t.Helper()
	consumer := openConsumer(t, e, queue, priority)
	defer consumer.Stop()
	var fetched broker.Delivery
	require.Call(consumer.Next(t.Context(), time.Minute, func(d broker.Delivery) { fetched = d })).Succeeds(t)
	require.True(t, fetched != nil, "no message of priority %s", priority)
	return fetched
}

func listDeadLetters(t *testing.T, e *Engine, queue string) []broker.DeadLetter {
	t.Helper()
	return require.Call(e.DeadLetters(queue).List(t.Context(), 0, 100)).Succeeds(t)
}

// requeueOne requeues the only dead letter of a queue.
func requeueOne(t *testing.T, e *Engine, queue string) {
	t.Helper()
	require.Equal(t, 1, require.Call(e.DeadLetters(queue).Requeue(t.Context(), broker.RequeueOptions{})).Succeeds(t))
}

func publishWithHeaders(t *testing.T, e *Engine, subject, payload string, header nats.Header) {
	t.Helper()
	require.Call(e.js.PublishMsg(t.Context(), &nats.Msg{Subject: subject, Data: []byte(payload), Header: header})).Succeeds(t)
}

func TestDeadLetterKeepsMessageAndRequeuesAsNew(t *testing.T) {
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
	require.Equal(t, 1, require.Call(again.History(t.Context())).Succeeds(t).Attempt())
	require.Equal(t, map[string][]string{"Tenant": {"a", "b"}, "Nats-Msg-Id": {"once"}}, again.Message().Headers)
	require.Equal(t, poison, string(again.Message().Payload))
	require.Equal(t, 0, readStats(t, e, "orders").DeadLetters)
}

// Other producers than the client can send a message that is as large as the server accepts.
func TestAMessageOfAnySizeBecomesADeadLetter(t *testing.T) {
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
			require.Equal(t, 1, require.Call(e.DeadLetters("orders").Move(t.Context(), "archive", 0)).Succeeds(t))
			n, err = e.DeadLetters("archive").Requeue(t.Context(), broker.RequeueOptions{})
			require.True(t, n == 0 && broker.ClassOf(err) == broker.ClassInvalid, "%d requeued, error %v", n, err)
			edited := []byte("a whole payload")
			require.Equal(t, 1, require.Call(e.DeadLetters("archive").Requeue(t.Context(), broker.RequeueOptions{Payload: &edited})).Succeeds(t))
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
	e := startWithQueue(t)
	other := ordersQueue(func(q *broker.QueueConfig) { q.Name = "other" })
	ensureQueue(t, e, other)
	buryNext(t, e, "a", "b", "c", "d")
	dead := e.DeadLetters("orders")

	page, err := dead.List(t.Context(), 1, 2)
	require.True(t, err == nil && payloadsOf(page) == "b c", "after 1, at most 2: %s, %v", payloadsOf(page), err)
	require.Equal(t, 0, require.Call(dead.Requeue(t.Context(), broker.RequeueOptions{Until: time.Now()})).Succeeds(t))
	require.Equal(t, 1, require.Call(dead.Requeue(t.Context(), broker.RequeueOptions{Number: 1, After: 1})).Succeeds(t))
	require.Equal(t, "a c d", payloadsOf(listDeadLetters(t, e, "orders")))
	require.Equal(t, 2, require.Call(dead.Move(t.Context(), "other", 2)).Succeeds(t))
	moved := listDeadLetters(t, e, "other")
	require.Equal(t, [2]string{"d", "a c"}, [2]string{payloadsOf(listDeadLetters(t, e, "orders")), payloadsOf(moved)})
	require.True(t, moved[0].Error == "bad" && moved[0].MessageID == "yardmaster_orders/1", "moved %+v", moved)
	isA := func(l *broker.DeadLetter) bool { return string(l.Payload) == "a" }
	for _, want := range []int{1, 0} {
		require.Equal(t, want, require.Call(e.DeadLetters("other").DeleteSelected(t.Context(), isA)).Succeeds(t))
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
	e := startWithQueue(t, withMaxBacklog(1))
	buryNext(t, e, "a")
	publish(t, e, "yardmaster.orders.ready.default", "x")
	n, err := e.DeadLetters("orders").Requeue(t.Context(), broker.RequeueOptions{})
	require.True(t, err != nil && n == 0, "requeued %d", n)
	require.Equal(t, "a", payloadsOf(listDeadLetters(t, e, "orders")))
}

func TestDeadLetterOfRemovedPriorityIsRequeuedToAnother(t *testing.T) {
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
			e := startWithQueue(t)
			publishWithHeaders(t, e, "yardmaster.orders.ready.default", "x", row.headers)
			requireID := func(when string, d broker.Delivery) {
				require.True(t, d.Message().ID == row.want, "%s: the ID is %q, want %q", when, d.Message().ID, row.want)
			}
			d := fetchOne(t, e, "orders", "default")
			requireID("first delivery", d)
			require.NoError(t, d.Retry(t.Context(), 0, "it failed"))
			d = fetchOne(t, e, "orders", "default")
			for _, when := range []string{"after a retry", "after requeueing", "after requeueing twice"} {
				requireID(when, d)
				d = buryAndRequeue(t, e, d)
			}
			require.Equal(t, 1, require.Call(d.History(t.Context())).Succeeds(t).Attempt())
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
			e := startWithQueue(t)
			ensureQueue(t, e, ordersQueue(func(q *broker.QueueConfig) { q.Name = "other" }))
			publishWithHeaders(t, e, "yardmaster.orders.ready.default", "x", row.headers)
			d := buryAndRequeue(t, e, fetchOne(t, e, "orders", "default"))
			require.NoError(t, d.Bury(t.Context(), "bad", 1))
			require.Equal(t, 1, require.Call(e.DeadLetters("orders").Move(t.Context(), "other", 0)).Succeeds(t))
			requeueOne(t, e, "other")
			require.Equal(t, row.want, fetchOne(t, e, "other", "default").Message().ID)
		})
	}
}

// The server would reject a dead letter whose Nats-Expected-Stream names another stream.
func TestNatsHeadersOfTheProducerAreKeptAndInstructTheServerOnlyOnce(t *testing.T) {
	e := startWithQueue(t)
	sent := nats.Header{
		"Nats-Msg-Id": {"once"}, "Nats-Expected-Stream": {"yardmaster_orders"}, "Nats-Custom": {"a", "b"}, "nats-lower": {"c"},
		broker.KindHeader: {"bill"}, "Yardmaster-Error": {"forged"}, "Yardmaster-Producer-Nats-Forged": {"forged"},
	}
	want := map[string][]string(maps.Clone(sent))
	maps.DeleteFunc(want, func(_ string, values []string) bool { return values[0] == "forged" })
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
