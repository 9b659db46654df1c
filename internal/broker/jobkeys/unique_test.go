package jobkeys

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// producerOutOfTime finds a key that is reserved for another job. It has no more time when it reads the key again.
type producerOutOfTime struct {
	broker.Producer
	broker.KeyStore

	reads int
	end   context.CancelFunc
}

func (p *producerOutOfTime) ReadKey(ctx context.Context, _ string, _ broker.Key) ([]byte, uint64, error) {
	p.reads++
	if p.reads > 1 {
		p.end()
		return nil, 0, broker.SendErrorOf(ctx.Err())
	}
	return []byte(`{"id":"lost","holder":"h"}`), 1, nil
}

func (*producerOutOfTime) WriteKey(context.Context, string, broker.Key, []byte, time.Duration, uint64) (uint64, error) {
	return 0, broker.ErrKeyChanged
}

func TestAProducerWhoseTimeEndsWhileItReadsAReservedKeyNamesTheKey(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	producer := &producerOutOfTime{end: cancel}
	_, err := Send(ctx, producer, &broker.OutgoingJob{Queue: "orders", IsUnique: true, UniqueKey: "k"})
	failure := (*broker.SendError)(nil)
	if !errors.As(err, &failure) || !errors.Is(failure.Failure, broker.ErrUnavailable) || failure.Field != "unique" || producer.reads != 2 {
		t.Errorf("after %d reads: %v (%+v), want the broker has not confirmed the job of the field unique", producer.reads, err, failure)
	}
}
