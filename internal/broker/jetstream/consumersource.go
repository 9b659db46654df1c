package jetstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/backlog"
)

// ConsumerOptions select a consumer.
type ConsumerOptions struct{ Stream, Consumer string }

// consumerSource reads one consumer that another application manages. Its requests change nothing on the server.
type consumerSource struct {
	*Engine
	options ConsumerOptions
}

// NewConsumerSource connects to a NATS server of any version that has JetStream. The consumer need not exist yet. The
// connection reconnects until Disconnect.
func NewConsumerSource(ctx context.Context, credentials broker.Credentials, o ConsumerOptions) (backlog.Source, error) {
	engine, err := connect(ctx, credentials)
	if err != nil {
		return nil, err
	}
	return &consumerSource{engine, o}, nil
}

// Read implements backlog.Source. Messages that the consumer has not delivered are the backlog. Messages that are not
// acknowledged are in flight, also while they wait for another delivery. The server may report any numbers.
func (s *consumerSource) Read(ctx context.Context) (backlog.Reading, error) {
	info, arrivals, err := s.readState(ctx)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		err = broker.Errorf(broker.ClassNotFound, "the stream does not exist")
	case errors.Is(err, jetstream.ErrConsumerNotFound):
		err = broker.Errorf(broker.ClassNotFound, "the consumer does not exist")
	case errors.Is(err, nats.ErrNoResponders) && s.domain != "":
		err = s.silentDomainError()
	case errors.Is(err, nats.ErrNoResponders):
		err = broker.Errorf(broker.ClassUnreachable, "the server has no JetStream for the account of the login")
	}
	if err != nil {
		return backlog.Reading{}, s.classifyError(fmt.Sprintf("reading the consumer %q of the stream %q", s.options.Consumer, s.options.Stream), err)
	}
	waiting, err := backlog.MessageCount("num_pending of the consumer", float64(info.NumPending))
	if err != nil {
		return backlog.Reading{}, err
	}
	inFlight, err := backlog.MessageCount("num_ack_pending of the consumer", float64(info.NumAckPending))
	if err != nil {
		return backlog.Reading{}, err
	}
	return backlog.Reading{
		Backlog: waiting, InFlight: &inFlight, InFlightMayWait: true, TotalArrivals: arrivals, MeasuredTime: time.Now(),
	}, nil
}

// readState returns a pull or push consumer, and the number of messages that its stream ever received; nil if the consumer has a
// filter, because then some of the messages are not for it.
func (s *consumerSource) readState(ctx context.Context) (info *jetstream.ConsumerInfo, arrivals *uint64, err error) {
	var consumer interface {
		CachedInfo() *jetstream.ConsumerInfo
	}
	consumer, err = s.js.Consumer(ctx, s.options.Stream, s.options.Consumer)
	if errors.Is(err, jetstream.ErrNotPullConsumer) {
		consumer, err = s.js.PushConsumer(ctx, s.options.Stream, s.options.Consumer)
	}
	if err != nil {
		return nil, nil, err
	}
	if info = consumer.CachedInfo(); info.Config.FilterSubject != "" || len(info.Config.FilterSubjects) > 0 {
		return info, nil, nil
	}
	found, err := s.js.Stream(ctx, s.options.Stream)
	if err != nil {
		return nil, nil, err
	}
	return info, &found.CachedInfo().State.LastSeq, nil
}
