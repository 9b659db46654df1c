package client

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/dial"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/queuetest"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestAJobArrivesWithWhatItsProducerSet(t *testing.T) {
	onEachEngine(t, func(t *testing.T, env *testEnv) {
		receipt := env.enqueue("data", Header("Tenant", "a"), Headers(map[string][]string{"Region": {"ä"}, "None": {}}), Timeout(90*time.Second), Kind("bill"))
		message := env.consume("default")()
		require.True(t, string(message.Payload) == "data" && receipt.ID != "" && !receipt.Duplicate, "payload %q, receipt %+v", message.Payload, receipt)
		if message.Kind != "bill" || message.ID != receipt.ID {
			t.Errorf("kind %q, ID %q, want that of the receipt, %q", message.Kind, message.ID, receipt.ID)
		}
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
			_, err := env.Enqueue(t.Context(), "full", nil)
			require.NoError(t, err)
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
				if errors.Is(want, ErrUnsupported) && !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(string(env.engine))) {
					t.Errorf("the error does not name the engine: %v", err)
				}
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
				if !errors.Is(result.Err, ErrUnknownPriority) && !errors.Is(result.Err, ErrUnsupported) {
					t.Error(result.Err)
				}
			default:
				want := Receipt{ID: strconv.Itoa(i % 2000), Duplicate: i >= 2000}
				require.True(t, result.Receipt == want && result.Err == nil, "result %d: %+v, want %+v", i, result, want)
			}
		}
		poll.Until(t, "the queue to have all jobs", func() bool { return env.Stats().Ready == 1998 })
		if results, err := env.EnqueueMany(t.Context(), "orders", nil); len(results) > 0 || err != nil {
			t.Errorf("without jobs: %v, %v", results, err)
		}
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
	select {
	case <-closed:
		t.Error("Close has not waited for the call")
	default:
	}
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

// invoice is a typed job.
type invoice struct {
	Number int `json:"number"`
}

func (invoice) Kind() string { return "invoice" }

// upperCase is a codec of the program.
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

// hangingProducer waits until the context ends.
var hangingProducer = &fakeProducer{send: func(ctx context.Context, _ *broker.OutgoingJob) (broker.SendResult, error) {
	<-ctx.Done()
	return broker.SendResult{}, broker.SendErrorOf(ctx.Err())
}}

// recordingProducer records jobs.
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
