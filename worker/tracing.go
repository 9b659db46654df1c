package worker

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

	"github.com/yardmaster/yardmaster/internal/broker/dial"
	"github.com/yardmaster/yardmaster/worker/internal/scheduler"
)

const (
	tracerName = "github.com/yardmaster/yardmaster/worker"
	// maxTraceHeaderBytes is the size of a tracestate that the standard requires to accept. A traceparent has 55 bytes.
	maxTraceHeaderBytes = 512
	// maxSpanTextBytes bounds text in a span that a handler or a producer chooses.
	maxSpanTextBytes = 1024

	operationProcess = "process"

	attributeAttempt     = attribute.Key("yardmaster.job.attempt")
	attributeMaxAttempts = attribute.Key("yardmaster.job.max_attempts")
	attributePriority    = attribute.Key("yardmaster.job.priority")
	attributeKind        = attribute.Key("yardmaster.job.kind")
	attributeResult      = attribute.Key("yardmaster.job.result")
)

var errorTypeTimeout = semconv.ErrorTypeKey.String("timeout")

// jobTracer makes a span of each attempt, unless it has no Tracer.
type jobTracer struct {
	trace.Tracer
	// system is the engine of the broker. It is set before the first job starts.
	system attribute.KeyValue
}

func newJobTracer(provider trace.TracerProvider) jobTracer {
	if provider == nil {
		return jobTracer{}
	}
	return jobTracer{Tracer: provider.Tracer(tracerName, trace.WithSchemaURL(semconv.SchemaURL))}
}

func (t *jobTracer) setEngine(name dial.EngineName) {
	t.system = semconv.MessagingSystemKey.String(strings.ToLower(string(name)))
}

// start starts the span of an attempt. Its parent is the span in which the producer sent the job, to which the semantic conventions also
// require a link.
func (t *jobTracer) start(ctx context.Context, job *Job) (context.Context, trace.Span) {
	if t.Tracer == nil {
		return ctx, noop.Span{}
	}
	options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
		t.system, semconv.MessagingDestinationName(job.Queue),
		semconv.MessagingOperationName(operationProcess), semconv.MessagingOperationTypeProcess,
	)}
	carrier := propagation.MapCarrier{}
	for _, name := range (propagation.TraceContext{}).Fields() {
		carrier[name] = traceHeader(job.Headers, name)
	}
	parent := propagation.TraceContext{}.Extract(context.Background(), carrier)
	if producer := trace.SpanContextFromContext(parent); producer.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, producer)
		options = append(options, trace.WithLinks(trace.Link{SpanContext: producer}))
	} else {
		options = append(options, trace.WithNewRoot()) // the context of Run may have a span
	}
	ctx, span := t.Start(ctx, operationProcess+" "+job.Queue, options...)
	if span.IsRecording() {
		span.SetAttributes(semconv.MessagingMessageID(spanText(job.ID)), semconv.MessagingMessageBodySize(len(job.Payload)),
			attributePriority.String(job.Priority), attributeAttempt.Int(job.Attempt), attributeMaxAttempts.Int(job.MaxAttempts))
		if job.Kind != "" {
			span.SetAttributes(attributeKind.String(spanText(job.Kind)))
		}
	}
	return ctx, span
}

// endSpan ends the span of an attempt, whose status is an error if the attempt failed.
func (w *Worker) endSpan(span trace.Span, m *scheduler.LeasedMessage, job *Job, err error) {
	defer span.End()
	if !span.IsRecording() {
		return
	}
	result := w.expectedResult(m, job, err)
	span.SetAttributes(attributeResult.String(result))
	if result == resultDone || result == resultReleased {
		return
	}
	errorType := semconv.ErrorTypeOther
	if errors.Is(err, errJobTimeout) {
		errorType = errorTypeTimeout
	}
	span.SetAttributes(errorType)
	span.SetStatus(codes.Error, spanText(err.Error()))
}

// expectedResult is the result of a job if its message can be settled accordingly.
func (w *Worker) expectedResult(m *scheduler.LeasedMessage, job *Job, err error) string {
	switch {
	case err == nil:
		return resultDone
	case job.report.wasCanceled(err):
		return resultCanceled
	case IsSnooze(err), w.wasInterrupted(err), staysInQueue(job, m.QueueConfig(), err):
		return resultReleased
	case returnsToQueue(job, err):
		return resultRetried
	case m.QueueConfig().DeadLetter.Enabled:
		return resultDeadLettered
	}
	return resultDropped
}

// spanText makes text valid for a span: a text that is not UTF-8 prevents the export of all spans of its batch.
func spanText(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxSpanTextBytes)], "")
}

// traceHeader returns the value of a header in any spelling; empty if it is too long or ambiguous. Any producer can choose the names and
// values of headers.
func traceHeader(headers map[string][]string, name string) string {
	var found []string
	for key, values := range headers {
		if !strings.EqualFold(key, name) {
			continue
		}
		if found != nil {
			return ""
		}
		found = values
	}
	size := 0
	for _, value := range found {
		if size += len(value) + 1; size > maxTraceHeaderBytes+1 {
			return ""
		}
	}
	return strings.Join(found, ",")
}
