package jetstream

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// ConsumerReader reads the state of consumers that other applications manage. Its requests change nothing on
// the server. Its methods are safe for concurrent use, and their errors have a class.
type ConsumerReader struct{ engine *Engine }

// NewConsumerReader connects to a NATS server of any version that has JetStream. The connection reconnects
// until Disconnect.
func NewConsumerReader(ctx context.Context, credentials broker.Credentials) (*ConsumerReader, error) {
	engine, err := connect(ctx, credentials)
	if err != nil {
		return nil, err
	}
	return &ConsumerReader{engine}, nil
}

// ConsumerState is the state of a consumer. The server may report any numbers.
type ConsumerState struct {
	// Pending is the number of messages that the consumer selects and has not delivered.
	Pending uint64
	// AckPending is the number of messages that were delivered and are not acknowledged. It includes those
	// that wait for another delivery.
	AckPending int
	// TotalArrivals is the number of messages that the stream ever received; nil if the consumer has a filter,
	// because then only some of them are for it.
	TotalArrivals *uint64
}

// ReadConsumer reads a pull or push consumer.
func (r *ConsumerReader) ReadConsumer(ctx context.Context, stream, consumer string) (*ConsumerState, error) {
	state, err := r.readState(ctx, stream, consumer)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		err = broker.Errorf(broker.ClassNotFound, "the stream does not exist")
	case errors.Is(err, jetstream.ErrConsumerNotFound):
		err = broker.Errorf(broker.ClassNotFound, "the consumer does not exist")
	case errors.Is(err, nats.ErrNoResponders) && r.engine.domain != "":
		err = r.engine.silentDomainError()
	case errors.Is(err, nats.ErrNoResponders):
		err = broker.Errorf(broker.ClassUnreachable, "the server has no JetStream for the account of the login")
	}
	return state, r.engine.classifyError(fmt.Sprintf("reading the consumer %q of the stream %q", consumer, stream), err)
}

func (r *ConsumerReader) readState(ctx context.Context, stream, consumer string) (*ConsumerState, error) {
	info, err := r.readInfo(ctx, stream, consumer)
	if err != nil {
		return nil, err
	}
	state := &ConsumerState{Pending: info.NumPending, AckPending: info.NumAckPending}
	if info.Config.FilterSubject != "" || len(info.Config.FilterSubjects) > 0 {
		return state, nil
	}
	found, err := r.engine.js.Stream(ctx, stream)
	if err != nil {
		return nil, err
	}
	state.TotalArrivals = &found.CachedInfo().State.LastSeq
	return state, nil
}

// readInfo sends another request for a push consumer, because the client library rejects it as a pull consumer.
func (r *ConsumerReader) readInfo(ctx context.Context, stream, consumer string) (*jetstream.ConsumerInfo, error) {
	pull, err := r.engine.js.Consumer(ctx, stream, consumer)
	if err == nil {
		return pull.CachedInfo(), nil
	}
	if !errors.Is(err, jetstream.ErrNotPullConsumer) {
		return nil, err
	}
	push, err := r.engine.js.PushConsumer(ctx, stream, consumer)
	if err != nil {
		return nil, err
	}
	return push.CachedInfo(), nil
}

// Disconnect closes the connection.
func (r *ConsumerReader) Disconnect() { r.engine.Disconnect() }
