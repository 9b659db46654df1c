package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
)

const (
	producerTrace  = "4bf92f3577b34da6a3ce929d0e0e4736"
	producerSpan   = "00f067aa0ba902b7"
	producerParent = "00-" + producerTrace + "-" + producerSpan + "-01"
)

// newRecorder returns a provider, and the spans that it has ended.
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
		if span.Name != "process orders" || span.SpanKind != trace.SpanKindConsumer || span.Status != wantStatus[i] ||
			parent.TraceID().String() != producerTrace || parent.SpanID().String() != producerSpan || !parent.IsRemote() ||
			span.SpanContext.TraceState().String() != "vendor=1" {
			t.Errorf("span of attempt %d: %+v", i+1, span)
		}
		require.True(t, len(span.Links) == 1 && span.Links[0].SpanContext.Equal(parent), "links of attempt %d: %+v", i+1, span.Links)
		if child.Parent.SpanID() != span.SpanContext.SpanID() || child.SpanContext.TraceID().String() != producerTrace {
			t.Errorf("the span of the handler is not a child of attempt %d: %+v", i+1, child)
		}
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
			if got.Parent.IsValid() || len(got.Links) > 0 || !got.SpanContext.IsValid() || got.SpanContext.TraceID() == own.TraceID() {
				t.Errorf("parent %+v, links %+v", got.Parent, got.Links)
			}
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
	if !own.IsRecording() || len(spans.GetSpans()) > 0 || handlerContext != ctx {
		t.Error("the worker ended the span of the program, or changed the context of the handler")
	}
}
