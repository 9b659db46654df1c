package workercommand

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"golang.org/x/time/rate"

	"github.com/yardmaster/yardmaster/worker"
)

const (
	// tracingStopTimeout bounds how long a drained worker waits until its last spans are exported.
	tracingStopTimeout = 3 * time.Second
	// exportErrorInterval is the shortest time between two logged errors of the exporter.
	exportErrorInterval = 30 * time.Second
	// maxExportErrorBytes bounds a logged error, which can contain the collector's response.
	maxExportErrorBytes = 512
	defaultServiceName  = "yardmaster-worker"

	protocolGRPC = "grpc"
	protocolHTTP = "http/protobuf"
)

// startTracing makes the worker export spans if the OTEL_* environment variables set an endpoint. Jobs do not depend on it: an error
// is logged. Call stop after the last job.
func startTracing(ctx context.Context, getenv func(string) string, o *worker.Options) (stop func()) {
	endpoint := cmp.Or(getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), getenv("OTEL_EXPORTER_OTLP_ENDPOINT"))
	if endpoint == "" || strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") || getenv("OTEL_TRACES_EXPORTER") == "none" {
		return func() {}
	}
	logErrors(o.Logger)
	provider, err := newTracerProvider(ctx, getenv, o)
	if err != nil {
		o.Logger.Error("Failed to configure tracing; the worker runs without", "error", err)
		return func() {}
	}
	o.TracerProvider = provider
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tracingStopTimeout)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			o.Logger.Warn("Failed to export the last spans", "error", err)
		}
	}
}

// newTracerProvider returns a provider whose queue of spans is bounded: while the collector is slow, spans are dropped. The exporter,
// the processor and the sampler read the other OTEL_* variables themselves.
func newTracerProvider(ctx context.Context, getenv func(string) string, o *worker.Options) (*sdktrace.TracerProvider, error) {
	if name := cmp.Or(getenv("OTEL_TRACES_EXPORTER"), "otlp"); name != "otlp" {
		return nil, fmt.Errorf("OTEL_TRACES_EXPORTER is %q, must be otlp or none", name)
	}
	var exporter sdktrace.SpanExporter
	var err error
	switch protocol := cmp.Or(getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), getenv("OTEL_EXPORTER_OTLP_PROTOCOL"), protocolHTTP); protocol {
	case protocolHTTP:
		exporter, err = otlptracehttp.New(ctx)
	case protocolGRPC:
		exporter, err = otlptracegrpc.New(ctx)
	default:
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL is %q, must be %s or %s", protocol, protocolHTTP, protocolGRPC)
	}
	if err != nil {
		return nil, err
	}
	attributes := []attribute.KeyValue{semconv.ServiceName(cmp.Or(o.Pool, defaultServiceName))}
	if o.Pod != "" {
		attributes = append(attributes, semconv.K8SNamespaceName(o.Namespace), semconv.K8SPodName(o.Pod))
	}
	identity, err := resource.New(ctx, resource.WithAttributes(attributes...), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		o.Logger.Warn("Some attributes of OTEL_RESOURCE_ATTRIBUTES are invalid and are omitted", "error", err)
	}
	return sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(identity)), nil
}

// logErrors logs the errors of exports, at most every exportErrorInterval.
func logErrors(log *slog.Logger) {
	sometimes := rate.Sometimes{Interval: exportErrorInterval}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		sometimes.Do(func() {
			text := err.Error()
			log.Warn("Failed to export spans; jobs are not affected", "error", text[:min(len(text), maxExportErrorBytes)])
		})
	}))
}

// traceEnvironment returns the environment variables with the trace context of a job.
func traceEnvironment(ctx context.Context) []string {
	fields := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, fields)
	var environment []string
	for name, value := range fields {
		environment = append(environment, strings.ToUpper(name)+"="+value)
	}
	return environment
}
