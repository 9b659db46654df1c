package kedascaler

import (
	"context"
	"crypto/tls"
	"errors"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/yardmaster/yardmaster/internal/backlog"
	"github.com/yardmaster/yardmaster/internal/backlog/kedascaler/externalscaler"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/certtest"
)

// fakeScaler is an external scaler: a real server of the protocol.
type fakeScaler struct {
	externalscaler.UnimplementedExternalScalerServer
	inactive bool
	metrics  []*externalscaler.MetricSpec
	values   map[string][]*externalscaler.MetricValue
	err      error
	asked    *externalscaler.ScaledObjectRef
}

func (p *fakeScaler) IsActive(_ context.Context, ref *externalscaler.ScaledObjectRef) (*externalscaler.IsActiveResponse, error) {
	p.asked = ref
	return &externalscaler.IsActiveResponse{Result: !p.inactive}, p.err
}

func (p *fakeScaler) GetMetricSpec(context.Context, *externalscaler.ScaledObjectRef) (*externalscaler.GetMetricSpecResponse, error) {
	return &externalscaler.GetMetricSpecResponse{MetricSpecs: p.metrics}, nil
}

func (p *fakeScaler) GetMetrics(_ context.Context, request *externalscaler.GetMetricsRequest) (*externalscaler.GetMetricsResponse, error) {
	return &externalscaler.GetMetricsResponse{MetricValues: p.values[request.GetMetricName()]}, nil
}

func (p *fakeScaler) listenAndServe(t *testing.T, options ...grpc.ServerOption) (address string) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(options...)
	externalscaler.RegisterExternalScalerServer(server, p)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

func newScalerSource(t *testing.T, o ScalerOptions) backlog.Source {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Disconnect)
	return s
}

func metricSpecs(name string, whole int64, anyNumber float64) *externalscaler.MetricSpec {
	return &externalscaler.MetricSpec{MetricName: name, TargetSize: whole, TargetSizeFloat: anyNumber}
}

func metricValues(whole int64, anyNumber float64) []*externalscaler.MetricValue {
	return []*externalscaler.MetricValue{{MetricName: "m", MetricValue: whole, MetricValueFloat: anyNumber}}
}

func TestReadingOfScalerMetrics(t *testing.T) {
	one := []*externalscaler.MetricSpec{metricSpecs("m", 5, 0)}
	for name, row := range map[string]struct {
		program fakeScaler
		want    float64
		class   broker.ErrorClass
		says    string
	}{
		"a whole number":                  {fakeScaler{metrics: one, values: map[string][]*externalscaler.MetricValue{"m": metricValues(12, 0)}}, 12, "", ""},
		"any number, which goes first":    {fakeScaler{metrics: []*externalscaler.MetricSpec{metricSpecs("m", 5, 2.5)}, values: map[string][]*externalscaler.MetricValue{"m": metricValues(12, 12.5)}}, 13, "", ""},
		"not active, whatever the metric": {fakeScaler{inactive: true, metrics: one, values: map[string][]*externalscaler.MetricValue{"m": metricValues(12, 0)}}, 0, "", ""},
		"active, whatever the metric":     {fakeScaler{metrics: one, values: map[string][]*externalscaler.MetricValue{"m": metricValues(0, 0)}}, 1, "", ""},
		"the metric that asks for most": {fakeScaler{
			metrics: []*externalscaler.MetricSpec{metricSpecs("a", 100, 0), metricSpecs("b", 1, 0), metricSpecs("c", 10, 0)},
			values:  map[string][]*externalscaler.MetricValue{"a": metricValues(200, 0), "b": metricValues(7, 0), "c": metricValues(30, 0)},
		}, 7, "", ""},
		"no metric":                     {fakeScaler{}, 0, broker.ClassInvalid, "returned 0 metrics"},
		"many metrics":                  {fakeScaler{metrics: make([]*externalscaler.MetricSpec, 33)}, 0, broker.ClassInvalid, "returned 33 metrics"},
		"a target of nothing":           {fakeScaler{metrics: []*externalscaler.MetricSpec{metricSpecs("m", 0, 0)}}, 0, broker.ClassInvalid, `the target of the metric "m" is 0`},
		"a target that is not a number": {fakeScaler{metrics: []*externalscaler.MetricSpec{metricSpecs("m", 0, math.NaN())}}, 0, broker.ClassInvalid, `is NaN`},
		"no value":                      {fakeScaler{metrics: one}, 0, broker.ClassInvalid, `the metric "m" has 0 values`},
		"two values":                    {fakeScaler{metrics: one, values: map[string][]*externalscaler.MetricValue{"m": append(metricValues(1, 0), metricValues(2, 0)...)}}, 0, broker.ClassInvalid, "has 2 values"},
		"not a number":                  {fakeScaler{metrics: one, values: map[string][]*externalscaler.MetricValue{"m": metricValues(0, math.NaN())}}, 0, broker.ClassInvalid, "is NaN, must be a number"},
		"less than nothing":             {fakeScaler{metrics: one, values: map[string][]*externalscaler.MetricValue{"m": metricValues(-3, 0)}}, 0, broker.ClassInvalid, "is -3"},
		"a long answer":                 {fakeScaler{metrics: []*externalscaler.MetricSpec{metricSpecs(strings.Repeat("x", maxResponseBytes), 1, 0)}}, 0, broker.ClassInvalid, "larger than max"},
		"a failure":                     {fakeScaler{err: errors.New("the queue is on fire")}, 0, broker.ClassUnknown, "the queue is on fire"},
		"no right to ask":               {fakeScaler{err: status.Error(codes.PermissionDenied, "not you")}, 0, broker.ClassUnauthorized, "not you"},
		"metadata that is wrong":        {fakeScaler{err: status.Error(codes.InvalidArgument, strings.Repeat("y", 4000))}, 0, broker.ClassInvalid, "y…"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScalerSource(t, ScalerOptions{Address: row.program.listenAndServe(t), Namespace: "team", Name: "orders", Metadata: map[string]string{"queue": "q"}})
			reading, err := s.Read(t.Context())
			if row.class != "" {
				if err == nil || broker.ClassOf(err) != row.class || !strings.Contains(err.Error(), row.says) || reading != (backlog.Reading{}) {
					t.Errorf("%+v: %v is %s, want %s", reading, err, broker.ClassOf(err), row.class)
				}
				return
			}
			if err != nil || float64(reading.Backlog) != row.want || reading.InFlight != nil || reading.MeasuredTime.IsZero() {
				t.Errorf("%+v: %v, want %g", reading, err, row.want)
			}
			if a := row.program.asked; a.GetName() != "orders" || a.GetNamespace() != "team" || a.GetScalerMetadata()["queue"] != "q" {
				t.Errorf("asked for %v", a)
			}
		})
	}
}

func TestMissingScalerIsUnreachable(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0") // it takes connections, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	for name, address := range map[string]string{"nobody": "127.0.0.1:1", "somebody silent": listener.Addr().String()} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := newScalerSource(t, ScalerOptions{Address: address}).Read(ctx); broker.ClassOf(err) != broker.ClassUnreachable {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestTLSConnectionToScaler(t *testing.T) {
	authority := certtest.New(t)
	certificate, key := authority.IssueCertificate()
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	p := &fakeScaler{metrics: []*externalscaler.MetricSpec{metricSpecs("m", 5, 0)}, values: map[string][]*externalscaler.MetricValue{"m": metricValues(2, 0)}}
	address := p.listenAndServe(t, grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})))
	for name, row := range map[string]struct {
		tls  *broker.TLS
		want broker.ErrorClass
	}{
		"with its authority":    {&broker.TLS{CA: authority.CertificatePEM}, ""},
		"with another":          {&broker.TLS{CA: certtest.New(t).CertificatePEM}, broker.ClassUnauthorized},
		"by the system's alone": {&broker.TLS{}, broker.ClassUnauthorized},
		"without TLS":           {nil, broker.ClassUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			reading, err := newScalerSource(t, ScalerOptions{Address: address, TLS: row.tls}).Read(t.Context())
			if row.want == "" && (err != nil || reading.Backlog != 2) || row.want != "" && broker.ClassOf(err) != row.want {
				t.Errorf("%+v: %v, want %s", reading, err, row.want)
			}
		})
	}
	if _, err := New(ScalerOptions{Address: address, TLS: &broker.TLS{CA: []byte("x")}}); broker.ClassOf(err) != broker.ClassInvalid {
		t.Errorf("with an invalid certificate authority: %v", err)
	}
}
