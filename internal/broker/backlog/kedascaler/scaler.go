// Package kedascaler reads the backlog from a program that implements the external scaler protocol of KEDA.
package kedascaler

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/backlog"
	"github.com/yardmaster/yardmaster/internal/broker/backlog/kedascaler/externalscaler"
)

const (
	responseTimeout = 5 * time.Second
	// maxResponseBytes is far more than a response needs.
	maxResponseBytes = 1 << 16
	// maxMetrics is more metrics than a scaler has.
	maxMetrics = 32
)

// ScalerOptions select a scaler and its scaled object.
type ScalerOptions struct {
	// Address is host:port.
	Address string
	// Namespace and Name of the scaled object, and the Metadata of its trigger.
	Namespace, Name string
	Metadata        map[string]string
	// Credentials for the connection: TLS, which is nil for a connection without TLS, and Dial.
	Credentials broker.Credentials
}

// ScalerSource reads one external scaler.
type ScalerSource struct {
	connection *grpc.ClientConn
	client     externalscaler.ExternalScalerClient
	object     *externalscaler.ScaledObjectRef
	dialer     *scalerDialer
}

var _ backlog.Source = (*ScalerSource)(nil)

// New returns a source that connects with the first reading.
func New(o ScalerOptions) (backlog.Source, error) {
	security := insecure.NewCredentials()
	if o.Credentials.TLS != nil {
		config, err := o.Credentials.TLS.ClientConfig()
		if err != nil {
			return nil, err
		}
		security = credentials.NewTLS(config)
	}
	dialer := &scalerDialer{credentials: &o.Credentials}
	connection, err := grpc.NewClient("passthrough:///"+o.Address, append(dialer.options(), grpc.WithTransportCredentials(security))...)
	if err != nil {
		return nil, broker.Errorf(broker.ClassInvalid, "address: %w", err)
	}
	return &ScalerSource{connection, externalscaler.NewExternalScalerClient(connection), &externalscaler.ScaledObjectRef{
		Namespace: o.Namespace, Name: o.Name, ScalerMetadata: maps.Clone(o.Metadata),
	}, dialer}, nil
}

// Read implements backlog.Source. Of several metrics, it uses the value and the target of the metric that needs the most replicas, as
// KEDA does.
func (s *ScalerSource) Read(ctx context.Context) (_ backlog.Reading, err error) {
	defer func() { err = s.dialer.credentials.Conceal(err, true) }()
	ctx, cancel := context.WithTimeout(ctx, responseTimeout)
	defer cancel()
	if conn := s.dialer.conn.Load(); conn != nil {
		conn.Renew()
	}
	active, err := s.client.IsActive(ctx, s.object)
	if err != nil {
		return backlog.Reading{}, classifyError("calling IsActive", err)
	}
	reading := backlog.Reading{MeasuredTime: time.Now()}
	specs, err := s.client.GetMetricSpec(ctx, s.object)
	if err != nil {
		return backlog.Reading{}, classifyError("calling GetMetricSpec", err)
	}
	metrics := specs.GetMetricSpecs()
	if n := len(metrics); n < 1 || n > maxMetrics {
		return backlog.Reading{}, broker.Errorf(broker.ClassInvalid, "GetMetricSpec returned %d metrics, must be 1 to %d", n, maxMetrics)
	}
	most := -1.0
	for _, metric := range metrics {
		waiting, target, err := s.readMetric(ctx, metric)
		if err != nil {
			return backlog.Reading{}, err
		}
		if replicas := float64(waiting) / target; replicas > most {
			most, reading.Backlog, reading.BacklogPerReplica = replicas, waiting, target
		}
	}
	// An inactive scaler has no backlog, an active one at least 1.
	if reading.Backlog = max(reading.Backlog, 1); !active.GetResult() {
		reading.Backlog = 0
	}
	return reading, nil
}

// readMetric returns the value of a metric, and its target for one replica.
func (s *ScalerSource) readMetric(ctx context.Context, spec *externalscaler.MetricSpec) (waiting int64, target float64, err error) {
	name := broker.TruncateText(spec.GetMetricName())
	target = cmp.Or(spec.GetTargetSizeFloat(), float64(spec.GetTargetSize())) // older scalers set only the integer
	if !(target > 0) {                                                        // nor is it NaN
		return 0, 0, broker.Errorf(broker.ClassInvalid, "GetMetricSpec: the target of the metric %q is %g, must be more than 0", name, target)
	}
	answer, err := s.client.GetMetrics(ctx, &externalscaler.GetMetricsRequest{ScaledObjectRef: s.object, MetricName: spec.GetMetricName()})
	if err != nil {
		return 0, 0, classifyError(fmt.Sprintf("calling GetMetrics for %q", name), err)
	}
	values := answer.GetMetricValues()
	if len(values) != 1 {
		return 0, 0, broker.Errorf(broker.ClassInvalid, "GetMetrics: the metric %q has %d values, must have 1", name, len(values))
	}
	value := cmp.Or(values[0].GetMetricValueFloat(), float64(values[0].GetMetricValue()))
	waiting, err = backlog.MessageCount(fmt.Sprintf("GetMetrics: the metric %q", name), value)
	return waiting, target, err
}

// Disconnect closes the connection.
func (s *ScalerSource) Disconnect() { _ = s.connection.Close() }

var errorClassByCode = map[codes.Code]broker.ErrorClass{
	codes.Unavailable:        broker.ClassUnreachable,
	codes.DeadlineExceeded:   broker.ClassUnreachable,
	codes.Aborted:            broker.ClassUnreachable,
	codes.Canceled:           broker.ClassUnreachable,
	codes.Unauthenticated:    broker.ClassUnauthorized,
	codes.PermissionDenied:   broker.ClassUnauthorized,
	codes.NotFound:           broker.ClassNotFound,
	codes.InvalidArgument:    broker.ClassInvalid,
	codes.FailedPrecondition: broker.ClassInvalid,
	codes.OutOfRange:         broker.ClassInvalid,
	codes.Unimplemented:      broker.ClassInvalid,
	codes.ResourceExhausted:  broker.ClassInvalid, // a response above maxResponseBytes
}

// handshakeFailure is in the message of gRPC when TLS verification fails.
const handshakeFailure = "authentication handshake failed"

func classifyError(operation string, err error) error {
	if broker.ClassOf(err) != broker.ClassUnknown { // concealed
		return broker.ClassifyNetworkError(operation, err)
	}
	grpcStatus := status.Convert(err)
	class := cmp.Or(errorClassByCode[grpcStatus.Code()], broker.ClassUnknown)
	if grpcStatus.Code() == codes.Unavailable && strings.Contains(grpcStatus.Message(), handshakeFailure) {
		class = broker.ClassUnauthorized
	}
	return broker.Errorf(class, "%s: %s: %s", operation, grpcStatus.Code(), broker.TruncateText(grpcStatus.Message()))
}
