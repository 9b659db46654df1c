package client

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/yardmaster/yardmaster/internal/broker/dial"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestJobsHaveTheTraceContextOfTheirProducerUnlessItSetsAnother(t *testing.T) {
	sent := newRecordingProducer()
	c := newClient(&Options{}, sent, dial.NATSEngine)
	ctx, span := sdktrace.NewTracerProvider().Tracer("program").Start(t.Context(), "checkout")
	defer span.End()
	_, err := c.Enqueue(ctx, "orders", nil)
	require.NoError(t, err)
	_, err = c.Enqueue(ctx, "orders", nil, Header("Traceparent", "mine"))
	require.NoError(t, err)
	_, err = c.Enqueue(t.Context(), "orders", nil)
	require.NoError(t, err)
	own := "00-" + span.SpanContext().TraceID().String() + "-" + span.SpanContext().SpanID().String() + "-01"
	for i, want := range []map[string][]string{{"traceparent": {own}}, {"Traceparent": {"mine"}}, nil} {
		require.Equal(t, want, sent.jobs[i].Headers, cmpopts.EquateEmpty())
	}
}

func TestEachCallIsASpan(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	sent := newRecordingProducer()
	c := newClient(&Options{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))}, sent, dial.NATSEngine)
	_, err := c.Enqueue(t.Context(), "orders", nil, ID("7"))
	require.NoError(t, err)
	_, err = c.EnqueueMany(t.Context(), "orders", []Job{NewJob(nil), NewJob(nil)})
	require.NoError(t, err)
	failing := newClient(&Options{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))}, hangingProducer, dial.NATSEngine)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = failing.Enqueue(ctx, "orders", nil)
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
		if span.Name != "send orders" || span.SpanKind != trace.SpanKindProducer || (span.Status.Code == codes.Error) != (i == 2) {
			t.Errorf("span %d: %+v", i, span)
		}
	}
	for _, job := range sent.jobs {
		require.True(t, len(job.Headers["traceparent"]) == 1, "headers %v", job.Headers)
	}
}
