package kedascaler

import (
	"context"
	"crypto/tls"
	"errors"
	"math"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/backlog"
	"github.com/yardmaster/yardmaster/internal/broker/backlog/kedascaler/externalscaler"
	"github.com/yardmaster/yardmaster/test/certtest"
	"github.com/yardmaster/yardmaster/test/require"
)

// fakeScaler is a gRPC server that implements KEDA's external scaler protocol.
type fakeScaler struct {
	externalscaler.UnimplementedExternalScalerServer
	inactive bool
	metrics  []*externalscaler.MetricSpec
	values   map[string][]*externalscaler.MetricValue
	err      error
	request  *externalscaler.ScaledObjectRef
}

func (p *fakeScaler) IsActive(_ context.Context, ref *externalscaler.ScaledObjectRef) (*externalscaler.IsActiveResponse, error) {
	p.request = ref
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
	listener := require.Call((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")).Succeeds(t)
	server := grpc.NewServer(options...)
	externalscaler.RegisterExternalScalerServer(server, p)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return listener.Addr().String()
}

func newScalerSource(t *testing.T, o ScalerOptions) backlog.Source {
	t.Helper()
	s := require.Call(New(o)).Succeeds(t)
	t.Cleanup(s.Disconnect)
	return s
}

func metricSpecs(name string, integer int64, float float64) *externalscaler.MetricSpec {
	return &externalscaler.MetricSpec{MetricName: name, TargetSize: integer, TargetSizeFloat: float}
}

func metricValues(integer int64, float float64) []*externalscaler.MetricValue {
	return []*externalscaler.MetricValue{{MetricName: "m", MetricValue: integer, MetricValueFloat: float}}
}

func oneMetric(values []*externalscaler.MetricValue) map[string][]*externalscaler.MetricValue {
	return map[string][]*externalscaler.MetricValue{"m": values}
}

// The target is that of the metric that needs most workers.
func TestABacklogAndItsTargetAreReadFromTheMetricsOfAScaler(t *testing.T) {
	one := []*externalscaler.MetricSpec{metricSpecs("m", 5, 0)}
	for name, row := range map[string]struct {
		scaler    fakeScaler
		want      int64
		target    float64
		class     broker.ErrorClass
		wantError string
	}{
		"an integer value":                                     {fakeScaler{metrics: one, values: oneMetric(metricValues(12, 0))}, 12, 5, "", ""},
		"a float value takes precedence":                       {fakeScaler{metrics: []*externalscaler.MetricSpec{metricSpecs("m", 5, 2.5)}, values: oneMetric(metricValues(12, 12.5))}, 13, 2.5, "", ""},
		"an inactive scaler has no backlog":                    {fakeScaler{inactive: true, metrics: one, values: oneMetric(metricValues(12, 0))}, 0, 5, "", ""},
		"an active scaler with the value 0 has a backlog of 1": {fakeScaler{metrics: one, values: oneMetric(metricValues(0, 0))}, 1, 5, "", ""},
		"the metric that recommends most workers": {fakeScaler{
			metrics: []*externalscaler.MetricSpec{metricSpecs("a", 100, 0), metricSpecs("b", 1, 0), metricSpecs("c", 10, 0)},
			values:  map[string][]*externalscaler.MetricValue{"a": metricValues(200, 0), "b": metricValues(7, 0), "c": metricValues(30, 0)},
		}, 7, 1, "", ""},
		"no metric":                     {fakeScaler{}, 0, 0, broker.ClassInvalid, "returned 0 metrics"},
		"too many metrics":              {fakeScaler{metrics: make([]*externalscaler.MetricSpec, 33)}, 0, 0, broker.ClassInvalid, "returned 33 metrics"},
		"a target of 0":                 {fakeScaler{metrics: []*externalscaler.MetricSpec{metricSpecs("m", 0, 0)}}, 0, 0, broker.ClassInvalid, `the target of the metric "m" is 0`},
		"a target that is not a number": {fakeScaler{metrics: []*externalscaler.MetricSpec{metricSpecs("m", 0, math.NaN())}}, 0, 0, broker.ClassInvalid, `is NaN`},
		"no value":                      {fakeScaler{metrics: one}, 0, 0, broker.ClassInvalid, `the metric "m" has 0 values`},
		"two values":                    {fakeScaler{metrics: one, values: map[string][]*externalscaler.MetricValue{"m": append(metricValues(1, 0), metricValues(2, 0)...)}}, 0, 0, broker.ClassInvalid, "has 2 values"},
		"not a number":                  {fakeScaler{metrics: one, values: oneMetric(metricValues(0, math.NaN()))}, 0, 0, broker.ClassInvalid, "is NaN, must be a number"},
		"a negative value":              {fakeScaler{metrics: one, values: oneMetric(metricValues(-3, 0))}, 0, 0, broker.ClassInvalid, "is -3"},
		"a response that is too large":  {fakeScaler{metrics: []*externalscaler.MetricSpec{metricSpecs(strings.Repeat("x", maxResponseBytes), 1, 0)}}, 0, 0, broker.ClassInvalid, "larger than max"},
		"an error":                      {fakeScaler{err: errors.New("the queue is on fire")}, 0, 0, broker.ClassUnknown, "the queue is on fire"},
		"permission denied":             {fakeScaler{err: status.Error(codes.PermissionDenied, "not you")}, 0, 0, broker.ClassUnauthorized, "not you"},
		"invalid metadata":              {fakeScaler{err: status.Error(codes.InvalidArgument, strings.Repeat("y", 4000))}, 0, 0, broker.ClassInvalid, "y…"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScalerSource(t, ScalerOptions{Address: row.scaler.listenAndServe(t), Namespace: "team", Name: "orders", Metadata: map[string]string{"queue": "q"}})
			reading, err := s.Read(t.Context())
			if row.class != "" {
				require.ErrorContains(t, err, row.wantError)
				require.True(t, broker.ClassOf(err) == row.class && reading == (backlog.Reading{}), "%+v: %v is %s", reading, err, broker.ClassOf(err))
				return
			}
			isRead := reading.Backlog == row.want && reading.BacklogPerReplica == row.target && !reading.MeasuredTime.IsZero()
			require.True(t, err == nil && isRead && reading.InFlight == nil, "%+v: %v, want %d and a target of %g", reading, err, row.want, row.target)
			a := row.scaler.request
			require.True(t, a.GetName() == "orders" && a.GetNamespace() == "team" && a.GetScalerMetadata()["queue"] == "q", "request for %v", a)
		})
	}
}

func TestTLSConnectionToScaler(t *testing.T) {
	certificate, key := certtest.NewCertificate(t)
	otherCertificate, _ := certtest.NewCertificate(t)
	pair := require.Call(tls.X509KeyPair(certificate, key)).Succeeds(t)
	p := &fakeScaler{metrics: []*externalscaler.MetricSpec{metricSpecs("m", 5, 0)}, values: oneMetric(metricValues(2, 0))}
	address := p.listenAndServe(t, grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})))
	for name, row := range map[string]struct {
		tls  *broker.TLS
		want broker.ErrorClass
	}{
		"the CA of the server":  {&broker.TLS{CA: certificate}, ""},
		"another CA":            {&broker.TLS{CA: otherCertificate}, broker.ClassUnauthorized},
		"the system's CAs only": {&broker.TLS{}, broker.ClassUnauthorized},
		"no TLS":                {nil, broker.ClassUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			reading, err := newScalerSource(t, ScalerOptions{Address: address, Credentials: broker.Credentials{TLS: row.tls}}).Read(t.Context())
			isRight := err == nil && row.want == "" && reading.Backlog == 2 || err != nil && broker.ClassOf(err) == row.want
			require.True(t, isRight, "%+v: %v, want %s", reading, err, row.want)
		})
	}
	_, err := New(ScalerOptions{Address: address, Credentials: broker.Credentials{TLS: &broker.TLS{CA: []byte("x")}}})
	require.True(t, broker.ClassOf(err) == broker.ClassInvalid, "an invalid CA: %v", err)
}
