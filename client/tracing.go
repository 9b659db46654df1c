package client

import (
	"context"
	"errors"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/yardmaster/yardmaster/internal/broker"
)

const (
	tracerName    = "github.com/yardmaster/yardmaster/client"
	operationSend = "send"
)

// sendTracer makes a span of each call, unless it has no Tracer.
type sendTracer struct {
	trace.Tracer

	system attribute.KeyValue
}

func (t *sendTracer) start(ctx context.Context, queue string, number int) (context.Context, trace.Span) {
	if t.Tracer == nil {
		return ctx, noop.Span{}
	}
	attributes := []attribute.KeyValue{
		t.system, semconv.MessagingDestinationName(queue),
		semconv.MessagingOperationName(operationSend), semconv.MessagingOperationTypeSend,
	}
	if number > 1 {
		attributes = append(attributes, semconv.MessagingBatchMessageCount(number))
	}
	return t.Start(ctx, operationSend+" "+queue, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(attributes...))
}

// end ends the span of a call. Several jobs have no common ID.
func (*sendTracer) end(span trace.Span, id string, err error) {
	defer span.End()
	if !span.IsRecording() {
		return
	}
	if id != "" {
		span.SetAttributes(semconv.MessagingMessageID(id))
	}
	if failure := (*Error)(nil); errors.As(err, &failure) {
		span.SetAttributes(semconv.ErrorTypeKey.String(failure.Reason.Error()))
		span.SetStatus(codes.Error, strings.ToValidUTF8(err.Error(), "?"))
	}
}

// traceParentHeader is set by producers that choose the trace context themselves.
const traceParentHeader = "traceparent"

// injectTraceContext adds the W3C trace context of the span in ctx to the headers of a job.
func injectTraceContext(ctx context.Context, job *broker.OutgoingJob) {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return
	}
	for name := range job.Headers {
		if strings.EqualFold(name, traceParentHeader) {
			return
		}
	}
	if job.Headers == nil {
		job.Headers = map[string][]string{}
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	for name, value := range carrier {
		job.Headers[name] = []string{value}
	}
}
