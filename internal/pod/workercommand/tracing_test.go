package workercommand

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/ports"
	"github.com/yardmaster/yardmaster/test/queuetest"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/worker"
)

const (
	producerTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	producerSpan  = "00f067aa0ba902b7"
)

// traceCollector receives spans as OTLP.
type traceCollector struct {
	collector.UnimplementedTraceServiceServer
	mu        sync.Mutex
	spans     []*tracepb.Span
	resources []*resourcepb.Resource
}

// Export implements the gRPC service.
func (c *traceCollector) Export(_ context.Context, request *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range request.GetResourceSpans() {
		c.resources = append(c.resources, r.GetResource())
		for _, s := range r.GetScopeSpans() {
			c.spans = append(c.spans, s.GetSpans()...)
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

func (c *traceCollector) received() []*tracepb.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.spans
}

// serveHTTP returns the URL of the collector.
func (c *traceCollector) serveHTTP(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, readError := io.ReadAll(r.Body)
		request := &collector.ExportTraceServiceRequest{}
		if err := errors.Join(readError, proto.Unmarshal(body, request)); err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("request to %s: %v", r.URL.Path, err)
		}
		_, _ = c.Export(r.Context(), request)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func (c *traceCollector) serveGRPC(t *testing.T) string {
	t.Helper()
	listener := require.Call((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")).Succeeds(t)
	s := grpc.NewServer()
	collector.RegisterTraceServiceServer(s, c)
	go func() { _ = s.Serve(listener) }()
	t.Cleanup(s.Stop)
	return "http://" + listener.Addr().String()
}

// serveHanging returns the URL of a collector that accepts requests and never responds, and the number of connections to it.
func serveHanging(t *testing.T) (target string, connections *atomic.Int64) {
	t.Helper()
	connections = &atomic.Int64{}
	ended := make(chan struct{})
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-ended }))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	t.Cleanup(func() { close(ended) })
	return s.URL, connections
}

// tracedOptions are the options of a worker with tracing. The exporters read the variables of the process.
func tracedOptions(t *testing.T, values map[string]string) (o *worker.Options, stop func()) {
	t.Helper()
	for name, value := range values {
		t.Setenv(name, value)
	}
	o = &worker.Options{Pool: "mail", Namespace: "shop", Pod: "mail-1", Logger: slog.New(slog.DiscardHandler)}
	return o, startTracing(t.Context(), func(name string) string { return values[name] }, o)
}

// forwardTwoAttempts runs a worker for a job whose first attempt fails. It returns the header traceparent of
// each attempt, and how long the worker took to stop.
func forwardTwoAttempts(t *testing.T) (parents []string, stopTime time.Duration) {
	t.Helper()
	q := queuetest.Start(t, "orders")
	q.SendWithHeaders("data", nats.Header{"traceparent": {"00-" + producerTrace + "-" + producerSpan + "-01"}})
	headers := make(chan string, 2)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		headers <- r.Header.Get("Traceparent")
		if r.Header.Get(headerAttempt) == "1" {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(server.Close)
	stop := runCommand(t, q, io.Discard, "--forward", server.URL)
	parents = []string{<-headers, <-headers}
	q.WaitUntilEmpty()
	stoppedAt := time.Now()
	stop()
	return parents, time.Since(stoppedAt)
}

func TestEachAttemptIsExportedInTheTraceOfItsProducer(t *testing.T) {
	for protocol, serve := range map[string]func(*traceCollector, *testing.T) string{
		"": (*traceCollector).serveHTTP, "http/protobuf": (*traceCollector).serveHTTP, "grpc": (*traceCollector).serveGRPC,
	} {
		t.Run(protocol, func(t *testing.T) {
			t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
			t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "team=a")
			t.Setenv("YARDMASTER_POOL", "mail")
			var received *traceCollector
			var parents []string
			poll.Until(t, "the spans to be exported before the worker stops", func() bool { // which it does in time, on a busy machine too
				received = &traceCollector{}
				t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", serve(received, t))
				parents, _ = forwardTwoAttempts(t)
				return len(received.received()) >= 2
			})
			var want []string
			for _, span := range received.received() {
				require.Equal(t, producerTrace+" "+producerSpan, fmt.Sprintf("%x %x", span.GetTraceId(), span.GetParentSpanId()))
				want = append(want, fmt.Sprintf("00-%s-%x-01", producerTrace, span.GetSpanId()))
			}
			require.True(t, len(want) == 2, "%d spans", len(want))
			assert.Equal(t, "spans that were exported, and those in requests", want, parents)
			resource := map[string]string{}
			for _, a := range received.resources[0].GetAttributes() {
				resource[a.GetKey()] = a.GetValue().GetStringValue()
			}
			require.True(t, resource["service.name"] == "mail" && resource["team"] == "a", "resource %v", resource)
		})
	}
}

func TestCommandsHaveTheTraceContextInTheirEnvironment(t *testing.T) {
	e, out := newScriptRunner(`echo "$TRACEPARENT $TRACESTATE"`)
	state := require.Call(trace.ParseTraceState("vendor=1")).Succeeds(t)
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, TraceState: state})
	require.NoError(t, e.handle(trace.ContextWithSpanContext(t.Context(), span), newJob()))
	want := "00-" + span.TraceID().String() + "-" + span.SpanID().String() + "-01 vendor=1\n"
	require.True(t, out.String() == want, "environment %q, want %q", out.String(), want)
}

func TestTracingIsOffUnlessAnEndpointIsSet(t *testing.T) {
	url, connections := serveHanging(t)
	for title, values := range map[string]map[string]string{
		"no endpoint":          {"OTEL_SERVICE_NAME": "x", "OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
		"endpoint for metrics": {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": url},
		"SDK disabled":         {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_SDK_DISABLED": "true"},
		"no exporter":          {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_TRACES_EXPORTER": "none"},
		"an unknown exporter":  {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_TRACES_EXPORTER": "zipkin"},
		"an unknown protocol":  {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": url, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json"},
	} {
		t.Run(title, func(t *testing.T) {
			running := goleak.IgnoreCurrent()
			o, stop := tracedOptions(t, values)
			require.True(t, o.TracerProvider == nil && connections.Load() == 0, "tracing is on")
			goleak.VerifyNone(t, running)
			stop()
		})
	}
}

func TestJobsDoNotDependOnTheCollector(t *testing.T) {
	hanging, _ := serveHanging(t)
	refusing := "http://" + ports.Reserve(t).String()
	failing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write(bytes.Repeat([]byte("x"), 1<<20))
	}))
	t.Cleanup(failing.Close)
	for title, values := range map[string]map[string]string{
		"hangs":              {"OTEL_EXPORTER_OTLP_ENDPOINT": hanging},
		"hangs, gRPC":        {"OTEL_EXPORTER_OTLP_ENDPOINT": hanging, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
		"refuses":            {"OTEL_EXPORTER_OTLP_ENDPOINT": refusing},
		"fails":              {"OTEL_EXPORTER_OTLP_ENDPOINT": failing.URL},
		"not a URL":          {"OTEL_EXPORTER_OTLP_ENDPOINT": "::not a url"},
		"missing CA":         {"OTEL_EXPORTER_OTLP_ENDPOINT": "https://127.0.0.1:1", "OTEL_EXPORTER_OTLP_CERTIFICATE": "/none"},
		"invalid attributes": {"OTEL_EXPORTER_OTLP_ENDPOINT": refusing, "OTEL_RESOURCE_ATTRIBUTES": "%zz"},
	} {
		t.Run(title, func(t *testing.T) {
			for name, value := range values {
				t.Setenv(name, value)
			}
			require.NoError(t, poll.UntilNil(t.Context(), func() error { // a busy machine can be late
				attempts, stopTime := forwardTwoAttempts(t)
				if limit := tracingStopTimeout + 2*time.Second; len(attempts) != 2 || stopTime > limit {
					return fmt.Errorf("%d attempts; the worker stopped after %s, want at most %s", len(attempts), stopTime, limit)
				}
				return nil
			}))
		})
	}
}

func TestSpansThatTheCollectorDoesNotTakeNeedLittleMemory(t *testing.T) {
	url, connections := serveHanging(t)
	o, stop := tracedOptions(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": url})
	defer stop()
	tracer := o.TracerProvider.Tracer("test")
	heap := func() uint64 {
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	before := heap()
	require.NoError(t, poll.UntilNil(t.Context(), func() error { // a busy machine can be late
		startedAt := time.Now()
		for range 200_000 {
			_, span := tracer.Start(t.Context(), strings.Repeat("x", 1024))
			span.End()
		}
		if took := time.Since(startedAt); took > 10*time.Second {
			return fmt.Errorf("200,000 spans took %s", took)
		}
		return nil
	}))
	poll.Until(t, "the collector to hang", func() bool { return connections.Load() > 0 })
	growth := int64(heap()) - int64(before)
	require.True(t, growth <= 32<<20, "the spans of a collector that hangs need %d MiB", growth>>20)
}
