package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/jobstate"
	"github.com/yardmaster/yardmaster/internal/pod/workerclient"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/worker/internal/scheduler"
)

// getAdmin returns the body of a response of the admin API.
func getAdmin(t *testing.T, w *Worker, path string) string {
	t.Helper()
	return callAdmin(t, w, http.MethodGet, path, nil).Body.String()
}

func TestTheStatsHaveTheProgressOfRunningJobsAndMetricsHaveNoIDs(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	env.SendWithHeaders("data", nats.Header{broker.JobIDHeader: {"order-5"}, broker.KindHeader: {"bill"}})
	reported, end := make(chan struct{}), make(chan struct{})
	w := env.start(env.config(), func(ctx context.Context, job *Job) error {
		job.Progress(ctx, 0.1, "begin")
		job.Progress(ctx, 0.4, "2 of 5 <pages>")
		close(reported)
		<-end
		return nil
	})
	<-reported
	var stats Stats
	body := getAdmin(t, w.Worker, "/stats")
	require.NoError(t, json.Unmarshal([]byte(body), &stats))
	isOne := len(stats.Progress) == 1 && stats.ProgressOmitted == 0 && strings.Contains(body, "2 of 5 <pages>")
	require.True(t, isOne, "stats %s, want the progress of one job", body)
	p := stats.Progress[0]
	isOfJob := p.Queue == "orders" && p.ID == "order-5" && p.Kind == "bill" && p.Attempt == 1 && p.Fraction == 0.4 && p.Text == "2 of 5 <pages>"
	require.True(t, isOfJob && !p.UpdateTime.Before(p.StartTime) && time.Since(p.StartTime) <= testTimeout, "progress %+v", p)
	metrics := getAdmin(t, w.Worker, "/metrics")
	require.Contains(t, metrics, "yardmaster_worker_in_flight 1")
	require.True(t, !strings.Contains(metrics, "order-5"), "the metrics contain the ID of a job:\n%s", metrics)
	close(end)
	env.WaitUntilEmpty()
	requireCleanShutdown(t, w)
	progress := w.Stats().Progress
	require.True(t, len(progress) == 0, "the job has ended, and its progress is %+v", progress)
}

func newProgressJob(board *progressBoard, id string, startTime time.Time) *Job {
	job := &Job{ID: id, Queue: "orders", Attempt: 1}
	job.progress = &progressRecorder{board: board, job: job, startTime: startTime}
	return job
}

func TestProgressIsBounded(t *testing.T) {
	for title, row := range map[string]struct {
		fraction     float64
		text         string
		wantFraction float64
		wantText     string
	}{
		"valid":                    {0.4, "ü", 0.4, "ü"},
		"more than 1":              {7, "", 1, ""},
		"negative":                 {-1, "", 0, ""},
		"not a number":             {math.NaN(), "", 0, ""},
		"infinite":                 {math.Inf(1), "", 1, ""},
		"a long text":              {0, strings.Repeat("ü", 100), 0, strings.Repeat("ü", 64)},
		"a character is truncated": {0, "x" + strings.Repeat("ü", 100), 0, "x" + strings.Repeat("ü", 63)},
		"control characters":       {0, "a\nb\x00\x1b[31m", 0, "a b  [31m"},
		"invalid UTF-8":            {0, "a\xffb", 0, "ab"},
	} {
		t.Run(title, func(t *testing.T) {
			board := &progressBoard{now: time.Now}
			newProgressJob(board, "1", time.Now()).Progress(t.Context(), row.fraction, row.text)
			jobs, _ := board.longest()
			isRight := len(jobs) == 1 && jobs[0].Fraction == row.wantFraction && jobs[0].Text == row.wantText
			require.True(t, isRight, "progress %+v, want %v %q", jobs, row.wantFraction, row.wantText)
		})
	}
}

func TestProgressHasNoEffectAfterTheEndOfAnAttemptOrWithoutAWorker(t *testing.T) {
	board := &progressBoard{now: time.Now}
	ended, cancelled := newProgressJob(board, "1", time.Now()), newProgressJob(board, "2", time.Now())
	ended.progress.end()
	ended.Progress(t.Context(), 0.5, "late")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	cancelled.Progress(ctx, 0.5, "late")
	new(Job).Progress(t.Context(), 0.5, "in a test")
	jobs, omitted := board.longest()
	require.True(t, len(jobs)+omitted == 0, "progress %+v", jobs)
}

func TestTheStatsHaveTheJobsThatHaveRunForTheLongest(t *testing.T) {
	board, now := &progressBoard{now: time.Now}, time.Now()
	for i := range 25 {
		newProgressJob(board, fmt.Sprint(i), now.Add(-time.Duration(i)*time.Minute)).Progress(t.Context(), 0, "")
	}
	jobs, omitted := board.longest()
	require.Equal(t, [2]int{maxReportedJobs, 15}, [2]int{len(jobs), omitted})
	require.Equal(t, [2]string{"24", "15"}, [2]string{jobs[0].ID, jobs[9].ID})
}

// The operator does not read longer stats, and would consider the worker unresponsive.
func TestTheOperatorReadsTheLongestStats(t *testing.T) {
	t.Parallel()
	queueName := func(i int) string { return strings.Repeat("n", 63) + "_" + fmt.Sprintf("%063d", i) + "_0123456789" }
	config := Config{Broker: BrokerConfig{URL: "unused"}, AdminAddress: "0", Concurrency: maxConcurrency}
	for i := range maxQueueCount {
		config.Queues = append(config.Queues, QueueConfig{Name: queueName(i)})
	}
	name := strings.Repeat("p", 253)
	env := newUnreachableEnv(t)
	w := env.newWorker(Options{Config: config, Pool: name, Namespace: name, Pod: name, Revision: name}, blockingHandler(nil))
	for _, q := range w.settings.queues {
		w.queues[q.Name] = &attachedQueue{config: q, scheduled: scheduler.NewScheduledQueue(q, nil)}
	}
	w.configureScheduler()
	for range 20 {
		job := newProgressJob(&w.progress, strings.Repeat(`"`, 300), time.Now())
		job.Queue, job.Kind = queueName(1), strings.Repeat(`\`, 300)
		job.Progress(t.Context(), 1.0/3, strings.Repeat("\u2028", 300))
	}
	server := httptest.NewServer(w.AdminHandler())
	t.Cleanup(server.Close)
	fetch := func() error {
		_, err := workerclient.New().FetchStats(t.Context(), strings.TrimPrefix(server.URL, "http://"))
		return err
	}
	require.NoError(t, poll.UntilNil(t.Context(), fetch)) // a request has a second, which may be too short on a busy machine
	body := getAdmin(t, w, "/stats")
	require.True(t, len(body) >= 10_000 && utf8.ValidString(body), "the stats have %d bytes, so this test does not test the longest ones", len(body))
}

func TestARequestToCancelAppliesUntilItsExpiry(t *testing.T) {
	sent := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for name, row := range map[string]struct {
		request jobstate.Cancel
		after   time.Duration
		want    bool
	}{
		"while the queue keeps it":             {jobstate.Cancel{}, 59 * time.Minute, true},
		"after the queue has deleted it":       {jobstate.Cancel{}, time.Hour, false},
		"for a job that was sent before":       {jobstate.Cancel{SentBefore: sent}, time.Minute, true},
		"for a job that was sent later":        {jobstate.Cancel{SentBefore: sent.Add(-1)}, time.Minute, false},
		"while the engine repeats it":          {jobstate.Cancel{ValidFor: 3 * time.Second}, time.Second, true},
		"after the engine has not repeated it": {jobstate.Cancel{ValidFor: 3 * time.Second}, 3 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			board := &reportBoard{}
			board.requestCancel("orders", "1", row.request, time.Hour, sent)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			w := &Worker{now: func() time.Time { return sent.Add(row.after) }}
			report := &attemptReport{w: w, job: &Job{Queue: "orders", ID: "1", SentTime: sent}, cancel: cancel}
			board.add(report)
			report.stop()
			require.Equal(t, row.want, errors.Is(context.Cause(ctx), ErrCanceled))
		})
	}
}

func TestRecentAttemptsDecay(t *testing.T) {
	start := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	var recorder attemptRecorder
	recorder.record(start, time.Second, true)
	recorder.record(start, 3*time.Second, false)
	require.Equal(t, RecentAttempts{Count: 2, Seconds: 4, Returned: 1}, recorder.recent(start))
	want := RecentAttempts{Count: 2 / math.E, Seconds: 4 / math.E, Returned: 1 / math.E}
	require.Equal(t, want, recorder.recent(start.Add(recentTime)), cmpopts.EquateApprox(0, 1e-9))
	recorder.record(start.Add(-time.Hour), -time.Second, false) // the clock was set back
	require.Equal(t, RecentAttempts{Count: 3, Seconds: 4, Returned: 1}, recorder.recent(start.Add(-time.Hour)))
}

func TestReturnedMessagesCountUntilTheyAreDue(t *testing.T) {
	var r returnedMessages
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, delay := range []time.Duration{0, 2 * time.Second, time.Minute, time.Hour} {
		r.add(now, delay)
	}
	for after, want := range map[time.Duration]int{0: 2, 2 * time.Second: 2, 4 * time.Second: 1, 62 * time.Second: 0} {
		counted := returnedMessages{due: maps.Clone(r.due)}
		got := counted.count(now.Add(after))
		require.True(t, got == want, "%d after %s, want %d", got, after, want)
	}
}

func TestMetricsOfTheProgramAreServedWithThoseOfTheWorker(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	env.Send("x")
	sent := prometheus.NewCounter(prometheus.CounterOpts{Name: "mails_sent_total", Help: "Mails that were sent."})
	o := Options{Config: env.config(), Pool: "mailers", Metrics: []prometheus.Collector{sent}}
	w := env.startWithOptions(o, func(context.Context, *Job) error {
		sent.Inc()
		return nil
	})
	env.WaitUntilEmpty()
	requireCleanShutdown(t, w)
	text := getAdmin(t, w.Worker, "/metrics")
	for _, want := range []string{
		`mails_sent_total{pool="mailers"} 1`,
		`yardmaster_worker_jobs_total{pool="mailers",queue="orders",result="done"} 1`,
		`yardmaster_worker_job_wait_seconds_count{pool="mailers",queue="orders"} 1`,
		`yardmaster_worker_job_duration_seconds_count{pool="mailers",queue="orders"} 1`,
	} {
		require.Contains(t, text, want+"\n")
	}
}

func TestNamesCanBeOmittedFromMetrics(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"true":  `yardmaster_worker_jobs_total{queue="",result="done"} 1`,
		"false": `yardmaster_worker_jobs_total{pool="mailers",queue="orders",result="done"} 1`,
		"":      `yardmaster_worker_jobs_total{pool="mailers",queue="orders",result="done"} 1`,
	} {
		o, err := parseEnvironment(func(name string) string { return map[string]string{envPool: "mailers", envOmitNames: value}[name] })
		require.NoError(t, err)
		w := newAdminWorker(t, o)
		w.metrics.countMessage("orders", resultDone)
		w.metrics.observeWait("orders", 0)
		w.metrics.observeDuration("orders", 0)
		text := getAdmin(t, w, "/metrics")
		require.Contains(t, text, want+"\n")
		require.True(t, value != "true" || !strings.Contains(text, "mailers") && !strings.Contains(text, "orders"), "names in\n%s", text)
	}
	_, err := parseEnvironment(func(name string) string { return map[string]string{envOmitNames: "maybe"}[name] })
	require.ErrorContains(t, err, envOmitNames)
}

const (
	producerTrace  = "4bf92f3577b34da6a3ce929d0e0e4736"
	producerSpan   = "00f067aa0ba902b7"
	producerParent = "00-" + producerTrace + "-" + producerSpan + "-01"
)

func newRecorder() (trace.TracerProvider, *tracetest.InMemoryExporter) {
	spans := tracetest.NewInMemoryExporter()
	return sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)), spans
}

func attributesOf(span *tracetest.SpanStub) map[string]string {
	values := map[string]string{}
	for _, a := range span.Attributes {
		values[string(a.Key)] = a.Value.String()
	}
	return values
}

func TestEachAttemptIsASpanWhoseParentIsThatOfTheProducer(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	env.SendWithHeaders("data", nats.Header{"traceparent": {producerParent}, "Tracestate": {"vendor=1"}})
	provider, spans := newRecorder()
	w := env.startWithOptions(Options{Config: env.config(withFastRetries), TracerProvider: provider}, func(ctx context.Context, job *Job) error {
		_, child := provider.Tracer("program").Start(ctx, "work")
		child.End()
		if job.Attempt == 1 {
			return errors.New("not yet")
		}
		return nil
	})
	env.WaitUntilEmpty()
	requireCleanShutdown(t, w)
	common := map[string]string{
		"messaging.system": "nats", "messaging.destination.name": "orders", "messaging.operation.name": "process",
		"messaging.operation.type": "process", "messaging.message.id": "1", "messaging.message.body.size": "4",
		"yardmaster.job.priority": "default", "yardmaster.job.max_attempts": "3",
	}
	want := []map[string]string{
		{"yardmaster.job.attempt": "1", "yardmaster.job.result": "retried", "error.type": "_OTHER"},
		{"yardmaster.job.attempt": "2", "yardmaster.job.result": "done"},
	}
	wantStatus := []sdktrace.Status{{Code: codes.Error, Description: "not yet"}, {Code: codes.Unset}}
	recorded := spans.GetSpans()
	require.True(t, len(recorded) == 4, "%d spans, want 2 of the program and 2 of the worker", len(recorded))
	for i := range want {
		child, span := recorded[2*i], recorded[2*i+1]
		maps.Copy(want[i], common)
		assert.Equal(t, fmt.Sprint("attributes of attempt ", i+1), want[i], attributesOf(&span))
		parent := span.Parent
		isAttempt := span.Name == "process orders" && span.SpanKind == trace.SpanKindConsumer && span.Status == wantStatus[i]
		hasParent := parent.TraceID().String() == producerTrace && parent.SpanID().String() == producerSpan && parent.IsRemote()
		require.True(t, isAttempt && hasParent && span.SpanContext.TraceState().String() == "vendor=1", "span of attempt %d: %+v", i+1, span)
		require.True(t, len(span.Links) == 1 && span.Links[0].SpanContext.Equal(parent), "links of attempt %d: %+v", i+1, span.Links)
		isChild := child.Parent.SpanID() == span.SpanContext.SpanID() && child.SpanContext.TraceID().String() == producerTrace
		require.True(t, isChild, "the span of the handler is not a child of attempt %d: %+v", i+1, child)
	}
}

// resultsOf returns the result of each attempt, and the type of its error.
func resultsOf(spans *tracetest.InMemoryExporter) (results []string) {
	for _, span := range spans.GetSpans() {
		values := attributesOf(&span)
		result := values["yardmaster.job.result"]
		if span.Status.Code == codes.Error {
			result += ": " + values["error.type"]
		}
		results = append(results, result)
	}
	return results
}

func TestTextsOfSpansAreBoundedAndValid(t *testing.T) {
	text := spanText(strings.Repeat("x", maxSpanTextBytes-2) + "\xffé")
	require.True(t, utf8.ValidString(text) && len(text) <= maxSpanTextBytes, "%d bytes, valid: %t", len(text), utf8.ValidString(text))
}

// traceJob returns the span of a job with headers, and that of the program that runs the worker.
func traceJob(t *testing.T, headers nats.Header) (span tracetest.SpanStub, own trace.SpanContext) {
	t.Helper()
	provider, spans := newRecorder()
	ctx, program := provider.Tracer("program").Start(t.Context(), "main")
	tracer := newJobTracer(provider)
	_, started := tracer.start(ctx, &Job{Headers: headers})
	started.End()
	return spans.GetSpans()[0], program.SpanContext()
}

func TestAnInvalidTraceContextStartsANewTrace(t *testing.T) {
	t.Parallel()
	for title, headers := range map[string]nats.Header{
		"none":                    {},
		"not a trace context":     {"traceparent": {"x"}},
		"empty":                   {"traceparent": {""}},
		"no trace":                {"traceparent": {"00-00000000000000000000000000000000-" + producerSpan + "-01"}},
		"no span":                 {"traceparent": {"00-" + producerTrace + "-0000000000000000-01"}},
		"reserved version":        {"traceparent": {"ff-" + producerTrace + "-" + producerSpan + "-01"}},
		"two values":              {"traceparent": {producerParent, producerParent}},
		"two spellings":           {"traceparent": {producerParent}, "Traceparent": {producerParent}},
		"very long":               {"traceparent": {"01-" + producerTrace + "-" + producerSpan + "-01-" + strings.Repeat("x", 100_000)}},
		"only a state":            {"tracestate": {"vendor=1"}},
		"very many empty values":  {"traceparent": make([]string, 20_000)},
		"bytes that are not text": {"traceparent": {"\xff\xfe\x01"}},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			got, own := traceJob(t, headers)
			isNew := !got.Parent.IsValid() && len(got.Links) == 0 && got.SpanContext.IsValid() && got.SpanContext.TraceID() != own.TraceID()
			require.True(t, isNew, "parent %+v, links %+v", got.Parent, got.Links)
		})
	}
}

func TestAnInvalidTraceStateIsOmitted(t *testing.T) {
	t.Parallel()
	for _, state := range [][]string{
		{"vendor=" + strings.Repeat("x", 600)}, {strings.Repeat("a=1,", 40) + "b=1"}, {"no state"}, {"a=\xff"},
	} {
		span, _ := traceJob(t, nats.Header{"traceparent": {producerParent}, "tracestate": state})
		got := span.SpanContext
		require.True(t, got.TraceState().Len() == 0 && got.TraceID().String() == producerTrace, "%.20q: %+v", state, got)
	}
}

func TestWithoutATracerProviderJobsHaveNoSpans(t *testing.T) {
	t.Parallel()
	provider, spans := newRecorder()
	ctx, own := provider.Tracer("program").Start(t.Context(), "main")
	tracer := newJobTracer(nil)
	handlerContext, span := tracer.start(ctx, &Job{Headers: nats.Header{"traceparent": {producerParent}}})
	span.End()
	isUntouched := own.IsRecording() && len(spans.GetSpans()) == 0 && handlerContext == ctx
	require.True(t, isUntouched, "the worker ended the span of the program, or changed the context of the handler")
}
