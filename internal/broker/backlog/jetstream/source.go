// Package jetstream reads the backlog of an existing NATS JetStream consumer.
package jetstream

import (
	"context"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/backlog"
	"github.com/yardmaster/yardmaster/internal/broker/jetstream"
)

// ConsumerOptions select a consumer and the targets of its pool.
type ConsumerOptions struct {
	Stream, Consumer string
	// LagThreshold is the number of messages per worker; 0 for no target.
	LagThreshold int32
	// ActivationLagThreshold is the number of messages up to which the pool needs no workers.
	ActivationLagThreshold int32
}

// ConsumerSource reads one consumer.
type ConsumerSource struct {
	*jetstream.ConsumerReader
	options ConsumerOptions
}

// NewConsumerSource connects to the server. The consumer need not exist yet.
func NewConsumerSource(ctx context.Context, credentials broker.Credentials, o ConsumerOptions) (backlog.Source, error) {
	reader, err := jetstream.NewConsumerReader(ctx, credentials)
	if err != nil {
		return nil, err
	}
	return &ConsumerSource{reader, o}, nil
}

// Read implements backlog.Source. Messages that the consumer has not delivered are the backlog; those that are
// not acknowledged are in flight, also while they wait for another delivery.
func (s *ConsumerSource) Read(ctx context.Context) (backlog.Reading, error) {
	state, err := s.ReadConsumer(ctx, s.options.Stream, s.options.Consumer)
	if err != nil {
		return backlog.Reading{}, err
	}
	waiting, err := backlog.MessageCount("num_pending of the consumer", float64(state.Pending))
	if err != nil {
		return backlog.Reading{}, err
	}
	inFlight, err := backlog.MessageCount("num_ack_pending of the consumer", float64(state.AckPending))
	if err != nil {
		return backlog.Reading{}, err
	}
	return backlog.Reading{
		Backlog: waiting, InFlight: &inFlight, InFlightMayWait: true, TotalArrivals: state.TotalArrivals,
		BacklogPerReplica: float64(s.options.LagThreshold), ActivationThreshold: int64(s.options.ActivationLagThreshold),
		MeasuredTime: time.Now(),
	}, nil
}
