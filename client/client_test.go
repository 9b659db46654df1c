package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats-server/v2/server"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/dial"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/natstest"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/queuetest"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestAJobArrivesWithWhatItsProducerSet(t *testing.T) {
	onEachEngine(t, func(t *testing.T, env *testEnv) {
		receipt := env.enqueue("data", Header("Tenant", "a"), Headers(map[string][]string{"Region": {"ä"}, "None": {}}), Timeout(90*time.Second), Kind("bill"))
		message := env.consume("default")()
		require.True(t, string(message.Payload) == "data" && receipt.ID != "" && !receipt.Duplicate, "payload %q, receipt %+v", message.Payload, receipt)
		require.Equal(t, [2]string{"bill", receipt.ID}, [2]string{message.Kind, message.ID})
		for name, want := range map[string]string{"Tenant": "a", "Region": "ä", "Yardmaster-Timeout": "1m30s", "None": ""} {
			assert.Equal(t, "header "+name, want, strings.Join(message.Headers[name], ","))
		}
	})
}

func TestJobsAreSentToTheirPriority(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t, dial.NATSEngine, func(q *broker.QueueConfig) { // asynq has no priorities
		q.Priorities = []broker.Priority{{Name: "high", Weight: 1}, {Name: "default", Weight: 1}}
	})
	env.enqueue("2")
	env.enqueue("1", Priority("high"))
	message := env.consume("high")()
	require.True(t, string(message.Payload) == "1" && message.Priority == "high", "%q has the priority %s", message.Payload, message.Priority)
	require.Equal(t, "2", string(env.consume("default")().Payload))
}

func TestOfJobsWithTheSameIDTheQueueKeepsOne(t *testing.T) {
	onEachEngine(t, func(t *testing.T, env *testEnv) {
		for id, option := range map[string]Option{"at-once": Delay(0), "delayed": Delay(time.Hour)} {
			first, second := env.enqueue("1", ID(id), option), env.enqueue("2", ID(id), option)
			require.True(t, first == (Receipt{ID: id}) && second == (Receipt{ID: id, Duplicate: true}), "receipts %+v and %+v", first, second)
		}
		poll.Until(t, "the queue to have two jobs", func() bool { s := env.Stats(); return s.Ready == 1 && s.Delayed == 1 })
	})
}

func TestADelayedJobStartsAtItsTime(t *testing.T) {
	onEachEngine(t, func(t *testing.T, env *testEnv) {
		next := env.consume("default")
		due := time.Now().Add(2 * time.Second)
		env.enqueue("at", At(due), ID("x.y/z"), Header("Tenant", "a"))
		env.enqueue("past", At(time.Now().Add(-time.Hour)))
		first, startTime := next(), time.Now()
		delayed := next()
		if string(first.Payload) == "at" && !startTime.Before(due) { // on a busy machine
			first, delayed = delayed, first
		}
		require.True(t, string(first.Payload) == "past", "the first job is %q", first.Payload)
		require.True(t, delayed.ID == "x.y/z", "the ID is %q", delayed.ID)
		now := time.Now()
		require.True(t, !now.Before(due), "the job started %s too early", due.Sub(now))
		require.True(t, string(delayed.Payload) == "at" && delayed.Headers["Tenant"][0] == "a", "%+v", delayed)
		env.enqueue("delay", Delay(time.Second))
		last := next()
		require.True(t, string(last.Payload) == "delay", "%q", last.Payload)
	})
}

func TestAnInvalidJobIsRejectedByField(t *testing.T) {
	large := strings.Repeat("x", broker.MaxHeaderBytes)
	for title, row := range map[string]struct {
		field   string
		queue   string
		options []Option
	}{
		"queue":                         {field: "queue", queue: "Orders"},
		"wildcard in the queue":         {field: "queue", queue: "*"},
		"priority":                      {field: "priority", options: []Option{Priority("a.b")}},
		"empty ID":                      {field: "id", options: []Option{ID("")}},
		"ID with a space":               {field: "id", options: []Option{ID("a b")}},
		"ID with a line break":          {field: "id", options: []Option{ID("a\r\nNats-Rollup: all")}},
		"long ID":                       {field: "id", options: []Option{ID(strings.Repeat("x", 129))}},
		"window without an ID":          {field: "deduplicateFor", options: []Option{DeduplicateFor(time.Minute)}},
		"negative window":               {field: "deduplicateFor", options: []Option{ID("a"), DeduplicateFor(-1)}},
		"short timeout":                 {field: "timeout", options: []Option{Timeout(time.Millisecond)}},
		"long timeout":                  {field: "timeout", options: []Option{Timeout(25 * time.Hour)}},
		"negative delay":                {field: "delay", options: []Option{Delay(-time.Second)}},
		"distant time":                  {field: "at", options: []Option{At(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC))}},
		"empty key":                     {field: "unique", options: []Option{Unique("")}},
		"key that is a space":           {field: "unique", options: []Option{Unique(" ")}},
		"key that is not ASCII":         {field: "unique", options: []Option{Unique("ö")}},
		"long key":                      {field: "unique", options: []Option{Unique(strings.Repeat("x", 200))}},
		"short window of a key":         {field: "uniqueFor", options: []Option{UniqueFor("k", time.Millisecond)}},
		"kind":                          {field: "kind", options: []Option{Kind("a\nb")}},
		"header name":                   {field: "headers[a:b]", options: []Option{Header("a:b", "c")}},
		"header with a line break":      {field: "headers[A]", options: []Option{Header("A", "b\r\nNats-Rollup: all")}},
		"header that would be trimmed":  {field: "headers[A]", options: []Option{Header("A", " b")}},
		"header that is not UTF-8":      {field: "headers[A]", options: []Option{Header("A", "\xff")}},
		"header of the server":          {field: "headers[nats-rollup]", options: []Option{Header("nats-rollup", "all")}},
		"header of the worker":          {field: "headers[Yardmaster-Attempts]", options: []Option{Header("Yardmaster-Attempts", "1")}},
		"header of the asynq engine":    {field: "headers[Asynq-Type]", options: []Option{Header("Asynq-Type", "a")}},
		"more headers than a job has":   {field: "headers", options: []Option{Header("A", large)}},
		"last of two options for a job": {field: "delay", options: []Option{At(time.Now()), Delay(-1)}},
	} {
		t.Run(title, func(t *testing.T) {
			c := newClient(&Options{}, &fakeProducer{send: func(context.Context, *broker.OutgoingJob) (broker.SendResult, error) {
				t.Error("an invalid job was sent")
				return broker.SendResult{}, nil
			}}, dial.NATSEngine)
			queue := cmp.Or(row.queue, "orders")
			_, err := c.Enqueue(t.Context(), queue, nil, row.options...)
			requireError(t, err, ErrInvalid, row.field)
			require.True(t, !IsRetryable(err), "the error is retryable")
			results, err := c.EnqueueMany(t.Context(), queue, []Job{NewJob(nil, row.options...)})
			requireError(t, err, ErrInvalid, row.field)
			requireError(t, results[0].Err, ErrInvalid, row.field)
		})
	}
}

func TestAJobThatTheQueueDoesNotAcceptIsRejected(t *testing.T) {
	onEachEngine(t, func(t *testing.T, env *testEnv) {
		env.createDraining("draining")
		isNATS := env.engine != dial.AsynqEngine
		if isNATS {
			queuetest.Ensure(t, env.Engine, "full", func(q *broker.QueueConfig) { q.MaxBacklog = 1 })
			require.Call(env.Enqueue(t.Context(), "full", nil)).Succeeds(t)
		}
		for title, row := range map[string]struct {
			queue, field string
			payload      []byte
			options      []Option
			onNATS       error
			onAsynq      error
		}{
			"unknown queue":              {queue: "nobody", field: "queue", onNATS: ErrUnknownQueue, onAsynq: ErrUnknownQueue},
			"unknown queue, delayed":     {queue: "nobody", field: "queue", options: []Option{Delay(time.Hour)}, onNATS: ErrUnknownQueue, onAsynq: ErrUnknownQueue},
			"unknown priority":           {field: "priority", options: []Option{Priority("high")}, onNATS: ErrUnknownPriority, onAsynq: ErrUnsupported},
			"unknown priority, delayed":  {field: "priority", options: []Option{Priority("high"), Delay(time.Hour)}, onNATS: ErrUnknownPriority, onAsynq: ErrUnsupported},
			"draining":                   {queue: "draining", field: "queue", onNATS: ErrDraining, onAsynq: ErrDraining},
			"draining, delayed":          {queue: "draining", field: "queue", options: []Option{Delay(time.Hour)}, onNATS: ErrDraining, onAsynq: ErrDraining},
			"full":                       {queue: "full", field: "queue", onNATS: ErrQueueFull},
			"more than the server takes": {field: "payload", payload: make([]byte, 2<<20), onNATS: ErrPayloadTooLarge},
			"longer window":              {field: "deduplicateFor", options: []Option{ID("a"), DeduplicateFor(time.Hour)}, onNATS: ErrUnsupported},
			"two values of a header":     {field: "headers[A]", options: []Option{Header("A", "b", "c")}, onAsynq: ErrUnsupported},
		} {
			t.Run(title, func(t *testing.T) {
				want := row.onAsynq
				if isNATS {
					want = row.onNATS
				}
				queue := cmp.Or(row.queue, "orders")
				if want == nil && queue == "full" {
					return // the engine has no limit
				}
				_, err := env.Enqueue(t.Context(), queue, row.payload, row.options...)
				if want == nil {
					require.NoError(t, err)
					return
				}
				requireError(t, err, want, row.field)
				require.True(t, IsRetryable(err) == errors.Is(want, ErrQueueFull), "retryable: %t", IsRetryable(err))
				isNamed := strings.Contains(strings.ToLower(err.Error()), strings.ToLower(string(env.engine)))
				require.True(t, isNamed || !errors.Is(want, ErrUnsupported), "the error does not name the engine: %v", err)
				results, _ := env.EnqueueMany(t.Context(), queue, []Job{NewJob(row.payload, row.options...)})
				requireError(t, results[0].Err, want, row.field)
			})
		}
	})
}

func TestEnqueueManyReturnsAResultForEachJob(t *testing.T) {
	onEachEngine(t, func(t *testing.T, env *testEnv) {
		var jobs []Job
		const number = 2500 // several batches
		for i := range number {
			switch i {
			case 1500:
				jobs = append(jobs, NewJob(nil, Priority("A")))
			case 1501:
				jobs = append(jobs, NewJob(nil, Priority("unknown")))
			default:
				jobs = append(jobs, NewJob(bytes.Repeat([]byte{'x'}, i), ID(strconv.Itoa(i%2000))))
			}
		}
		results, err := env.EnqueueMany(t.Context(), "orders", jobs)
		requireError(t, err, ErrInvalid, "priority")
		for i, result := range results {
			switch i {
			case 1500:
				requireError(t, result.Err, ErrInvalid, "priority")
			case 1501:
				require.True(t, errors.Is(result.Err, ErrUnknownPriority) || errors.Is(result.Err, ErrUnsupported), "%v", result.Err)
			default:
				want := Receipt{ID: strconv.Itoa(i % 2000), Duplicate: i >= 2000}
				require.True(t, result.Receipt == want && result.Err == nil, "result %d: %+v, want %+v", i, result, want)
			}
		}
		poll.Until(t, "the queue to have all jobs", func() bool { return env.Stats().Ready == 1998 })
		results, err = env.EnqueueMany(t.Context(), "orders", nil)
		require.True(t, len(results) == 0 && err == nil, "without jobs: %v, %v", results, err)
	})
}

func TestBatchesAreLimited(t *testing.T) {
	sized := func(sizes ...int) (jobs []Job) {
		for _, size := range sizes {
			jobs = append(jobs, NewJob(make([]byte, size)))
		}
		return jobs
	}
	for title, row := range map[string]struct {
		jobs []Job
		want int
	}{
		"by number":                   {make([]Job, 1500), 1000},
		"by size":                     {sized(6<<20, 1<<20, 2<<20), 2},
		"a larger job is sent itself": {sized(9<<20, 1), 1},
		"all":                         {sized(1, 2), 2},
	} {
		got := chunkEnd(row.jobs, 0)
		require.True(t, got == row.want, "%s: the first batch has %d jobs, want %d", title, got, row.want)
	}
}

func TestAnOutageOfTheBrokerIsRetryableAndTheClientReconnects(t *testing.T) {
	onEachEngine(t, func(t *testing.T, env *testEnv) {
		env.stop()
		short := env.options
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		_, err := env.Enqueue(ctx, "orders", nil, ID("1"))
		requireError(t, err, ErrUnavailable, "")
		require.True(t, IsRetryable(err) && strings.Contains(err.Error(), "orders"), "%v, retryable: %t", err, IsRetryable(err))
		ended, endNow := context.WithCancel(t.Context())
		endNow()
		results, err := env.EnqueueMany(ended, "orders", make([]Job, 3))
		requireError(t, err, ErrUnavailable, "")
		for _, result := range results {
			requireError(t, result.Err, ErrUnavailable, "")
		}
		short.Timeout = 200 * time.Millisecond
		_, err = New(t.Context(), short)
		requireError(t, err, ErrUnavailable, "")

		env.restart()
		poll.Until(t, "the client to reconnect", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			_, err := env.Enqueue(ctx, "orders", nil, ID("1"))
			return err == nil
		})
	})
}

func TestACallEndsAtTheTimeoutOfTheClient(t *testing.T) {
	t.Parallel()
	c := newClient(&Options{Timeout: 10 * time.Millisecond}, hangingProducer, dial.NATSEngine)
	_, err := c.Enqueue(t.Context(), "orders", nil)
	requireError(t, err, ErrUnavailable, "")
	require.True(t, errors.Is(err, context.DeadlineExceeded), "%v", err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = c.Enqueue(ctx, "orders", nil)
	require.True(t, errors.Is(err, context.Canceled) && errors.Is(err, ErrUnavailable), "%v", err)
}

func TestCloseWaitsForCallsAndRejectsLaterOnes(t *testing.T) {
	t.Parallel()
	c := newClient(&Options{Timeout: testTimeout}, hangingProducer, dial.NATSEngine)
	ctx, cancel := context.WithCancel(t.Context())
	called := make(chan error, 1)
	go func() {
		_, err := c.Enqueue(ctx, "orders", nil)
		called <- err
	}()
	closed := make(chan error, 1)
	poll.Until(t, "the call to run", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return c.running > 0 })
	go func() { closed <- c.Close(context.Background()) }()
	poll.Until(t, "the client to be closed", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return c.isClosed })
	_, err := c.Enqueue(t.Context(), "orders", nil)
	requireError(t, err, ErrClosed, "")
	require.True(t, len(closed) == 0, "Close has not waited for the call")
	ended, endNow := context.WithCancel(t.Context())
	endNow()
	require.ErrorIs(t, c.Close(ended), context.Canceled)
	cancel()
	require.NoError(t, <-closed)
	<-called
	results, err := c.EnqueueMany(t.Context(), "orders", make([]Job, 1))
	requireError(t, err, ErrClosed, "")
	requireError(t, results[0].Err, ErrClosed, "")
}

type invoice struct {
	Number int `json:"number"`
}

func (invoice) Kind() string { return "invoice" }

type upperCase struct{}

func (upperCase) Encode(value any) ([]byte, error) {
	return []byte(strings.ToUpper(fmt.Sprint(value))), nil
}

func (upperCase) ContentType() string { return "" }

func TestValuesAreEncodedByTheCodec(t *testing.T) {
	sent := newRecordingProducer()
	c := newClient(&Options{}, sent, dial.NATSEngine)
	custom := newClient(&Options{Codec: upperCase{}}, sent, dial.NATSEngine)
	for _, send := range []func() error{
		func() error { _, err := Enqueue(t.Context(), c, "orders", invoice{7}); return err },
		func() error {
			_, err := Enqueue(t.Context(), c, "orders", &invoice{8}, Kind("other"), Header("Content-Type", "x"))
			return err
		},
		func() error { _, err := Enqueue(t.Context(), custom, "orders", "text"); return err },
		func() error {
			_, err := c.EnqueueMany(t.Context(), "orders", []Job{Encode(c, []int{1}, ID("a"))})
			return err
		},
	} {
		require.NoError(t, send())
	}
	want := []string{
		`{"number":7} invoice map[Content-Type:[application/json]]`, `{"number":8} other map[Content-Type:[x]]`, `TEXT  map[]`,
		`[1]  map[Content-Type:[application/json]]`,
	}
	var got []string
	for _, job := range sent.jobs {
		got = append(got, fmt.Sprintf("%s %s %v", job.Payload, job.Kind, job.Headers))
	}
	require.Equal(t, want, got)
	_, err := Enqueue(t.Context(), c, "orders", make(chan int))
	requireError(t, err, ErrInvalid, "payload")
}

// fakeProducer sends each job with a function.
type fakeProducer struct {
	broker.Producer
	send func(context.Context, *broker.OutgoingJob) (broker.SendResult, error)
}

func (p *fakeProducer) Send(ctx context.Context, job *broker.OutgoingJob) (broker.SendResult, error) {
	return p.send(ctx, job)
}

func (p *fakeProducer) SendMany(ctx context.Context, _ string, jobs []*broker.OutgoingJob) (results []broker.SendResult) {
	for _, job := range jobs {
		result, err := p.send(ctx, job)
		result.Err = err
		results = append(results, result)
	}
	return results
}

func (*fakeProducer) Disconnect() {}

var hangingProducer = &fakeProducer{send: func(ctx context.Context, _ *broker.OutgoingJob) (broker.SendResult, error) {
	<-ctx.Done()
	return broker.SendResult{}, broker.SendErrorOf(ctx.Err())
}}

type recordingProducer struct {
	fakeProducer
	jobs []*broker.OutgoingJob
}

func newRecordingProducer() *recordingProducer {
	p := &recordingProducer{}
	p.send = func(_ context.Context, job *broker.OutgoingJob) (broker.SendResult, error) {
		p.jobs = append(p.jobs, job)
		return broker.SendResult{ID: job.ID}, nil
	}
	return p
}

// Every text that the client accepts must arrive, and none may become another header or another field of the message.
func TestEachHeaderKindAndIDThatTheClientAcceptsArrivesUnchanged(t *testing.T) {
	onEachEngine(t, func(t *testing.T, env *testEnv) {
		random := rand.New(rand.NewPCG(1, 2))
		next := env.consume("default")
		accepted := 0
		for range 3000 {
			name, value, kind, id := randomText(random), randomText(random), randomText(random), randomText(random)
			receipt, err := env.Enqueue(t.Context(), "orders", []byte(value), Header(name, value), Kind(kind), ID(id))
			if err != nil {
				require.True(t, errors.Is(err, ErrInvalid), "%v", err)
				continue
			}
			if receipt.Duplicate {
				continue
			}
			accepted++
			message := next()
			got := []any{message.ID, message.Kind, string(message.Payload), message.Headers[name]}
			if kind == "" {
				got[1] = "" // asynq has a type for each task
			}
			require.Equal(t, []any{id, kind, value, []string{value}}, got)
		}
		require.True(t, accepted >= 50, "only %d texts were accepted", accepted)
	})
}

// randomText is often valid, and often nearly.
func randomText(random *rand.Rand) string {
	if random.IntN(4) == 0 {
		return []string{"a", "A", "x-1", "Tenant", "a.b*>", "é", " a", "a ", "a\r\nb: c", "a\x00", "\xff", "a\u2028b", "a\tb", "{}", ":", ""}[random.IntN(16)]
	}
	text := []byte{}
	for range 1 + random.IntN(6) {
		text = utf8.AppendRune(text, '!'+rune(random.IntN('~'-'!')))
	}
	return string(text)
}

func TestJobsHaveTheTraceContextOfTheirProducerUnlessItSetsAnother(t *testing.T) {
	sent := newRecordingProducer()
	c := newClient(&Options{}, sent, dial.NATSEngine)
	ctx, span := sdktrace.NewTracerProvider().Tracer("program").Start(t.Context(), "checkout")
	defer span.End()
	require.Call(c.Enqueue(ctx, "orders", nil)).Succeeds(t)
	require.Call(c.Enqueue(ctx, "orders", nil, Header("Traceparent", "mine"))).Succeeds(t)
	require.Call(c.Enqueue(t.Context(), "orders", nil)).Succeeds(t)
	own := "00-" + span.SpanContext().TraceID().String() + "-" + span.SpanContext().SpanID().String() + "-01"
	for i, want := range []map[string][]string{{"traceparent": {own}}, {"Traceparent": {"mine"}}, nil} {
		require.Equal(t, want, sent.jobs[i].Headers, cmpopts.EquateEmpty())
	}
}

func TestEachCallIsASpan(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	sent := newRecordingProducer()
	c := newClient(&Options{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))}, sent, dial.NATSEngine)
	require.Call(c.Enqueue(t.Context(), "orders", nil, ID("7"))).Succeeds(t)
	require.Call(c.EnqueueMany(t.Context(), "orders", []Job{NewJob(nil), NewJob(nil)})).Succeeds(t)
	failing := newClient(&Options{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))}, hangingProducer, dial.NATSEngine)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := failing.Enqueue(ctx, "orders", nil)
	require.True(t, err != nil, "no error")
	recorded := spans.GetSpans()
	require.True(t, len(recorded) == 3, "%d spans, want 3", len(recorded))
	for i, want := range []map[string]string{
		{"messaging.message.id": "7"}, {"messaging.batch.message_count": "2"}, {"error.type": ErrUnavailable.Error()},
	} {
		span := &recorded[i]
		got := map[string]string{}
		for _, a := range span.Attributes {
			got[string(a.Key)] = a.Value.String()
		}
		want["messaging.system"], want["messaging.destination.name"], want["messaging.operation.type"] = "nats", "orders", "send"
		for name, value := range want {
			require.True(t, got[name] == value, "span %d: %s is %q, want %q", i, name, got[name], value)
		}
		isRight := span.Name == "send orders" && span.SpanKind == trace.SpanKindProducer && (span.Status.Code == codes.Error) == (i == 2)
		require.True(t, isRight, "span %d: %+v", i, span)
	}
	for _, job := range sent.jobs {
		require.True(t, len(job.Headers["traceparent"]) == 1, "headers %v", job.Headers)
	}
}

// producers are the programs of examples/producer in other languages.
var producers = map[string][]string{
	"Python":     {"python3", "../examples/producer/enqueue.py"},
	"JavaScript": {"node", "../examples/producer/enqueue.mjs"},
}

func TestProducersInOtherLanguagesSendTheSameJobs(t *testing.T) {
	for language, program := range producers {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			env := newTestEnv(t, dial.NATSEngine)
			run := func(queue, payload string, arguments ...string) (answer struct{ Duplicate bool }, err error) {
				command := append(append(program[1:1:1], program[1], env.options.Broker.URL, queue, payload), arguments...)
				output, err := exec.CommandContext(t.Context(), program[0], command...).CombinedOutput()
				if err == nil {
					err = json.Unmarshal(output, &answer)
				}
				t.Logf("%v: %s", command[1:], output)
				return answer, err
			}
			next := env.consume("default")
			payload := `{"name": "Müller"}`
			due := time.Now().Add(time.Second).UTC().Format(time.RFC3339Nano)
			for title, job := range map[string]struct {
				options   []Option
				arguments []string
			}{
				"with an ID": {
					[]Option{ID("a"), Kind("charge"), Timeout(time.Minute), Header("Tenant", "ü=1")},
					[]string{"Nats-Msg-Id=b", "Yardmaster-Kind=charge", "Yardmaster-Timeout=1m0s", "Tenant=ü=1"},
				},
				"delayed": {[]Option{ID("c"), At(time.Now().Add(time.Second))}, []string{"Nats-Msg-Id=d", "Yardmaster-Job-Id=d", "--at", due}},
			} {
				env.enqueue(payload, job.options...)
				want := next()
				for _, isDuplicate := range []bool{false, true} {
					answer, err := run("orders", payload, job.arguments...)
					require.True(t, err == nil && answer.Duplicate == isDuplicate, "%s: duplicate %t, want %t; %v", title, answer.Duplicate, isDuplicate, err)
				}
				queuetest.AssertSameJob(t, title, want, next())
			}
			_, err := run("nobody", payload)
			require.True(t, err != nil, "a job was sent to an unknown queue")
		})
	}
}

func TestTheEnvironmentOfAWorkerHasTheBroker(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	for title, row := range map[string]struct {
		content     string
		url, wantTo string
		want        BrokerConfig
	}{
		"file":                      {content: "broker: {url: nats://a, tls: {caFile: c}}\nqueues: [{name: b}]\nconcurrency: 5", url: "nats://b", want: BrokerConfig{URL: "nats://a", TLS: TLSConfig{CAFile: "c"}}},
		"file without a broker":     {content: "concurrency: 5", url: "nats://b", want: BrokerConfig{URL: "nats://b"}},
		"URL":                       {url: "nats://b", want: BrokerConfig{URL: "nats://b"}},
		"neither":                   {},
		"unknown field of a broker": {content: "broker: {urls: a}", wantTo: `unknown field "urls"`},
	} {
		t.Run(title, func(t *testing.T) {
			env := map[string]string{envBrokerURL: row.url}
			if row.content != "" {
				env[envConfigFile] = file
				require.NoError(t, os.WriteFile(file, []byte(row.content), 0o600))
			}
			got, err := parseEnvironment(func(name string) string { return env[name] })
			require.Equal(t, row.want, got.Broker)
			require.True(t, (err != nil) == (row.wantTo != "") && strings.Contains(fmt.Sprint(err), row.wantTo), "%v", err)
		})
	}
}

func TestAnInvalidBrokerOrLoginIsRejected(t *testing.T) {
	t.Parallel()
	locked := natstest.Start(t, func(o *server.Options) { o.Users = []*server.User{{Username: "a", Password: "p"}} })
	for title, row := range map[string]struct {
		options Options
		field   string
		want    error
	}{
		"none":             {Options{}, "broker", ErrInvalid},
		"two URLs":         {Options{Broker: BrokerConfig{URL: "a", URLFile: "b"}}, "broker", ErrInvalid},
		"a missing file":   {Options{Broker: BrokerConfig{URLFile: "/none"}}, "", ErrInvalid},
		"an invalid URL":   {Options{Broker: BrokerConfig{URL: "http://a"}}, "", ErrInvalid},
		"negative timeout": {Options{Broker: BrokerConfig{URL: "nats://a"}, Timeout: -1}, "timeout", ErrInvalid},
		"rejected login":   {Options{Broker: BrokerConfig{URL: "nats://b:q@" + locked.Address()}}, "", ErrUnauthorized},
	} {
		t.Run(title, func(t *testing.T) {
			_, err := New(t.Context(), row.options)
			requireError(t, err, row.want, row.field)
		})
	}
}

func TestDocumentedPermissionsSufficeToSendJobs(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t, dial.NATSEngine)
	env.createDraining("closed")
	env.permitDocumented(1)
	env.enqueue("", Delay(1), ID("1"), DeduplicateFor(1))
	require.Call(env.EnqueueMany(t.Context(), "orders", []Job{NewJob(nil)})).Succeeds(t)
	_, err := env.Enqueue(t.Context(), "orders", nil, Priority("high"))
	requireError(t, err, ErrUnknownPriority, "priority")
	short := env.options
	short.Timeout = defaultTimeout / 10
	closed := env.connect(short)
	poll.Until(t, "the server to report the missing permission before the timeout", func() bool {
		_, err = closed.Enqueue(t.Context(), "closed", nil)
		return !errors.Is(err, ErrUnavailable)
	})
	requireError(t, err, ErrUnauthorized, "")
}

func TestDocumentedPermissionsSufficeForEachFeature(t *testing.T) {
	t.Parallel()
	for title, row := range map[string]struct {
		// lists of permissions in docs/client.md.
		lists   []int
		changes []func(*broker.QueueConfig)
		use     func(*testEnv)
	}{
		"canceling delayed jobs": {[]int{1, 2}, nil, func(env *testEnv) {
			env.enqueue("x", ID("a"), Delay(time.Hour))
			require.True(env.t, env.cancel("a"), "the job was not canceled")
		}},
		"following and canceling jobs": {[]int{1, 2, 3}, []func(*broker.QueueConfig){withResults}, func(env *testEnv) {
			id := env.enqueue("1", Track()).ID
			env.enqueue("1", ID("later"), Delay(time.Hour))
			env.requireState(id, StateWaiting)
			env.requireCancel(id, CancelRequested)
			env.requireCancel("later", CancelDone)
			env.requireState("later", StateCanceled)
		}},
		"unique jobs and batches": {[]int{1, 2, 4}, nil, func(env *testEnv) {
			env.enqueue("1", ID("a"), Unique("k"))
			env.enqueue("1", ID("a"), Unique("k"))
			env.requireTaken("a", Unique("k"))
			env.enqueueBatch(batchOf("a"), NewJob(nil, ID("x")))
			env.requireBatch("x", BatchInfo{State: BatchRunning, Total: 1})
		}},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			env := newTestEnv(t, dial.NATSEngine, row.changes...)
			env.permitDocumented(row.lists...)
			row.use(env)
		})
	}
}

// documentedSubjects returns one of the lists of permissions in docs/client.md.
func documentedSubjects(t testing.TB, number int) []string {
	t.Helper()
	page := require.Call(os.ReadFile("../docs/client.md")).Succeeds(t)
	_, list, _ := strings.Cut(string(page), "needs to publish to")
	parts := strings.Split(list, "```")
	require.True(t, len(parts) > 2*number, "docs/client.md has no list %d of permissions", number)
	return strings.Fields(parts[2*number-1])
}

// permitDocumented restarts the server with a login that has lists of permissions in docs/client.md, and connects the client with it.
func (env *testEnv) permitDocumented(lists ...int) {
	env.t.Helper()
	permissions := &server.Permissions{Publish: &server.SubjectPermission{}, Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}}}
	for _, number := range lists {
		permissions.Publish.Allow = append(permissions.Publish.Allow, documentedSubjects(env.t, number)...)
	}
	o := env.Server.Options()
	o.Users = []*server.User{{Username: "admin", Password: "p"}, {Username: "producer", Password: "p", Permissions: permissions}}
	o.NoAuthUser = "admin"
	env.restart()
	poll.Until(env.t, "the queue to be readable", func() bool {
		_, err := env.Engine.Stats(env.t.Context(), "orders")
		return err == nil
	})
	env.options.Broker.URL = strings.Replace(env.options.Broker.URL, "nats://", "nats://producer:p@", 1)
	env.Client = env.connect(env.options)
}
