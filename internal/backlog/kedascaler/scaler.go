// Package kedascaler reads how much waits from a program that speaks the protocol of
// KEDA's external scalers.
package kedascaler

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/yardmaster/yardmaster/internal/backlog"
	"github.com/yardmaster/yardmaster/internal/backlog/kedascaler/externalscaler"
	"github.com/yardmaster/yardmaster/internal/broker"
)

const (
	// answerTimeout is how long one question may take.
	answerTimeout = 5 * time.Second
	// maxAnswer is far more than an answer has.
	maxAnswer = 1 << 16
	// mostMetrics are more than a scaler has.
	mostMetrics = 32
)

// ScalerOptions say which program is asked, and for what.
type ScalerOptions struct {
	// Address is host:port.
	Address string
	// Namespace and Name of the object that is scaled, and the Metadata of its trigger.
	Namespace, Name string
	Metadata        map[string]string
	// TLS, if the program has it.
	TLS *broker.TLS
}

// ScalerSource is an external scaler.
type ScalerSource struct {
	connection *grpc.ClientConn
	client     externalscaler.ExternalScalerClient
	object     *externalscaler.ScaledObjectRef
}

var _ backlog.Source = (*ScalerSource)(nil)

// New connects to nothing yet.
func New(o ScalerOptions) (backlog.Source, error) {
	security := insecure.NewCredentials()
	if o.TLS != nil {
		config, err := o.TLS.ClientConfig()
		if err != nil {
			return nil, err
		}
		security = credentials.NewTLS(config)
	}
	connection, err := grpc.NewClient("dns:///"+o.Address, grpc.WithTransportCredentials(security),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return nil, broker.Errorf(broker.ClassInvalid, "address: %w", err)
	}
	return &ScalerSource{connection, externalscaler.NewExternalScalerClient(connection), &externalscaler.ScaledObjectRef{
		Namespace: o.Namespace, Name: o.Name, ScalerMetadata: maps.Clone(o.Metadata),
	}}, nil
}

// Read asks whether there is anything to do, and how much. With several metrics it is the
// one that asks for most replicas, as in KEDA.
func (s *ScalerSource) Read(ctx context.Context) (backlog.Reading, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	active, err := s.client.IsActive(ctx, s.object)
	if err != nil {
		return backlog.Reading{}, classify("asking IsActive", err)
	}
	reading := backlog.Reading{MeasuredTime: time.Now()}
	specs, err := s.client.GetMetricSpec(ctx, s.object)
	if err != nil {
		return backlog.Reading{}, classify("asking GetMetricSpec", err)
	}
	metrics := specs.GetMetricSpecs()
	if n := len(metrics); n < 1 || n > mostMetrics {
		return backlog.Reading{}, broker.Errorf(broker.ClassInvalid, "GetMetricSpec names %d metrics, must be 1 to %d", n, mostMetrics)
	}
	most := -1.0
	for _, metric := range metrics {
		waiting, target, err := s.metric(ctx, metric)
		if err != nil {
			return backlog.Reading{}, err
		}
		if replicas := float64(waiting) / target; replicas > most {
			most, reading.Backlog = replicas, waiting
		}
	}
	reading.Backlog = agreed(active.GetResult(), reading.Backlog)
	return reading, nil
}

// agreed goes by the scaler's word on whether there is anything to do, and by its metric
// on how much.
func agreed(active bool, waiting int64) int64 {
	if !active {
		return 0
	}
	return max(waiting, 1)
}

// metric is how much there is of one metric, and how much of it is for one replica.
func (s *ScalerSource) metric(ctx context.Context, spec *externalscaler.MetricSpec) (waiting int64, target float64, err error) {
	name := printable(spec.GetMetricName())
	target = either(spec.GetTargetSize(), spec.GetTargetSizeFloat())
	if !(target > 0) { // nor is it NaN
		return 0, 0, broker.Errorf(broker.ClassInvalid, "GetMetricSpec: the target of the metric %q is %g, must be more than 0", name, target)
	}
	answer, err := s.client.GetMetrics(ctx, &externalscaler.GetMetricsRequest{ScaledObjectRef: s.object, MetricName: spec.GetMetricName()})
	if err != nil {
		return 0, 0, classify(fmt.Sprintf("asking GetMetrics for %q", name), err)
	}
	values := answer.GetMetricValues()
	if len(values) != 1 {
		return 0, 0, broker.Errorf(broker.ClassInvalid, "GetMetrics: the metric %q has %d values, must have 1", name, len(values))
	}
	value := either(values[0].GetMetricValue(), values[0].GetMetricValueFloat())
	waiting, err = backlog.MessageCount(fmt.Sprintf("GetMetrics: the metric %q", name), value)
	return waiting, target, err
}

// either is a number that stands in one of two fields. Older scalers only know the one
// for whole numbers.
func either(whole int64, anyNumber float64) float64 {
	if anyNumber != 0 {
		return anyNumber
	}
	return float64(whole)
}

// Disconnect ends the connection.
func (s *ScalerSource) Disconnect() { _ = s.connection.Close() }

// maxText bounds what of the scaler's words is repeated.
const maxText = 300

func printable(text string) string {
	text = strings.ToValidUTF8(text, "?")
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	return text
}
