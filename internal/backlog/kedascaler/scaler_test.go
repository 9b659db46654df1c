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

// program is an external scaler: a real server of the protocol.
type program struct {
	externalscaler.UnimplementedExternalScalerServer
	inactive bool
	metrics  []*externalscaler.MetricSpec
	values   map[string][]*externalscaler.MetricValue
	err      error
	asked    *externalscaler.ScaledObjectRef
}

func (p *program) IsActive(_ context.Context, ref *externalscaler.ScaledObjectRef) (*externalscaler.IsActiveResponse, error) {
	p.asked = ref
	return &externalscaler.IsActiveResponse{Result: !p.inactive}, p.err
}

func (p *program) GetMetricSpec(context.Context, *externalscaler.ScaledObjectRef) (*externalscaler.GetMetricSpecResponse, error) {
	return &externalscaler.GetMetricSpecResponse{MetricSpecs: p.metrics}, nil
}

func (p *program) GetMetrics(_ context.Context, request *externalscaler.GetMetricsRequest) (*externalscaler.GetMetricsResponse, error) {
	return &externalscaler.GetMetricsResponse{MetricValues: p.values[request.GetMetricName()]}, nil
}

func (p *program) serve(t *testing.T, options ...grpc.ServerOption) (address string) {
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

func scaler(t *testing.T, o ScalerOptions) backlog.Source {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Disconnect)
	return s
}

func spec(name string, whole int64, anyNumber float64) *externalscaler.MetricSpec {
	return &externalscaler.MetricSpec{MetricName: name, TargetSize: whole, TargetSizeFloat: anyNumber}
}

func value(whole int64, anyNumber float64) []*externalscaler.MetricValue {
	return []*externalscaler.MetricValue{{MetricName: "m", MetricValue: whole, MetricValueFloat: anyNumber}}
}

func TestWhatAScalerSays(t *testing.T) {
	one := []*externalscaler.MetricSpec{spec("m", 5, 0)}
	for name, row := range map[string]struct {
		program program
		want    float64
		class   broker.ErrorClass
		says    string
	}{
		"a whole number":                  {program{metrics: one, values: map[string][]*externalscaler.MetricValue{"m": value(12, 0)}}, 12, "", ""},
		"any number, which goes first":    {program{metrics: []*externalscaler.MetricSpec{spec("m", 5, 2.5)}, values: map[string][]*externalscaler.MetricValue{"m": value(12, 12.5)}}, 13, "", ""},
		"not active, whatever the metric": {program{inactive: true, metrics: one, values: map[string][]*externalscaler.MetricValue{"m": value(12, 0)}}, 0, "", ""},
		"active, whatever the metric":     {program{metrics: one, values: map[string][]*externalscaler.MetricValue{"m": value(0, 0)}}, 1, "", ""},
		"the metric that asks for most": {program{
			metrics: []*externalscaler.MetricSpec{spec("a", 100, 0), spec("b", 1, 0), spec("c", 10, 0)},
			values:  map[string][]*externalscaler.MetricValue{"a": value(200, 0), "b": value(7, 0), "c": value(30, 0)},
		}, 7, "", ""},
		"no metric":              {program{}, 0, broker.ClassInvalid, "names 0 metrics"},
		"many metrics":           {program{metrics: make([]*externalscaler.MetricSpec, 33)}, 0, broker.ClassInvalid, "names 33 metrics"},
		"a target of nothing":    {program{metrics: []*externalscaler.MetricSpec{spec("m", 0, 0)}}, 0, broker.ClassInvalid, `the target of the metric "m" is 0`},
		"a target that is none":  {program{metrics: []*externalscaler.MetricSpec{spec("m", 0, math.NaN())}}, 0, broker.ClassInvalid, `is NaN`},
		"no value":               {program{metrics: one}, 0, broker.ClassInvalid, `the metric "m" has 0 values`},
		"two values":             {program{metrics: one, values: map[string][]*externalscaler.MetricValue{"m": append(value(1, 0), value(2, 0)...)}}, 0, broker.ClassInvalid, "has 2 values"},
		"not a number":           {program{metrics: one, values: map[string][]*externalscaler.MetricValue{"m": value(0, math.NaN())}}, 0, broker.ClassInvalid, "is NaN, must be a number"},
		"less than nothing":      {program{metrics: one, values: map[string][]*externalscaler.MetricValue{"m": value(-3, 0)}}, 0, broker.ClassInvalid, "is -3"},
		"a long answer":          {program{metrics: []*externalscaler.MetricSpec{spec(strings.Repeat("x", maxAnswer), 1, 0)}}, 0, broker.ClassInvalid, "larger than max"},
		"a failure":              {program{err: errors.New("the queue is on fire")}, 0, broker.ClassUnknown, "the queue is on fire"},
		"no right to ask":        {program{err: status.Error(codes.PermissionDenied, "not you")}, 0, broker.ClassUnauthorized, "not you"},
		"metadata that is wrong": {program{err: status.Error(codes.InvalidArgument, strings.Repeat("y", 4000))}, 0, broker.ClassInvalid, "y…"},
	} {
		t.Run(name, func(t *testing.T) {
			s := scaler(t, ScalerOptions{Address: row.program.serve(t), Namespace: "team", Name: "orders", Metadata: map[string]string{"queue": "q"}})
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

func TestAScalerThatIsNotThereIsUnreachable(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0") // it takes connections, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	for name, address := range map[string]string{"nobody": "127.0.0.1:1", "somebody silent": listener.Addr().String()} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := scaler(t, ScalerOptions{Address: address}).Read(ctx); broker.ClassOf(err) != broker.ClassUnreachable {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestTLS(t *testing.T) {
	authority := certtest.New(t)
	certificate, key := authority.IssueCertificate()
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	p := &program{metrics: []*externalscaler.MetricSpec{spec("m", 5, 0)}, values: map[string][]*externalscaler.MetricValue{"m": value(2, 0)}}
	address := p.serve(t, grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})))
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
			reading, err := scaler(t, ScalerOptions{Address: address, TLS: row.tls}).Read(t.Context())
			if row.want == "" && (err != nil || reading.Backlog != 2) || row.want != "" && broker.ClassOf(err) != row.want {
				t.Errorf("%+v: %v, want %s", reading, err, row.want)
			}
		})
	}
	if _, err := New(ScalerOptions{Address: address, TLS: &broker.TLS{CA: []byte("x")}}); broker.ClassOf(err) != broker.ClassInvalid {
		t.Errorf("with an authority that is none: %v", err)
	}
}
