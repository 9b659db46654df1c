package jobkeys_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/jetstream"
	"github.com/yardmaster/yardmaster/internal/broker/jobkeys"
	"github.com/yardmaster/yardmaster/test/natstest"
)

// producerOutOfTime has no more time when it reads a key again.
type producerOutOfTime struct {
	broker.Producer
	broker.KeyStore

	reads int
	end   context.CancelFunc
}

func (p *producerOutOfTime) ReadKey(ctx context.Context, queue string, key broker.Key) ([]byte, uint64, error) {
	p.reads++
	if p.reads > 1 {
		p.end()
	}
	return p.KeyStore.ReadKey(ctx, queue, key)
}

func TestAProducerWhoseTimeEndsWhileItReadsAReservedKeyNamesTheKey(t *testing.T) {
	engine, err := jetstream.Connect(t.Context(), broker.Credentials{URL: "nats://" + natstest.Start(t).Address()})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Disconnect()
	config := broker.DefaultQueueConfig("orders")
	config.Owner = broker.QueueOwner{UID: "test", Name: "test/orders"}
	if _, err := engine.EnsureQueue(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	store := engine.(broker.KeyStore)
	key := broker.Key{Kind: broker.UniqueKey, Name: "k"}
	if _, err := store.WriteKey(t.Context(), "orders", key, []byte(`{"id":"lost","holder":"h"}`), time.Minute, 0); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	producer := &producerOutOfTime{KeyStore: store, end: cancel}
	_, err = jobkeys.Send(ctx, producer, &broker.OutgoingJob{Queue: "orders", IsUnique: true, UniqueKey: "k"})
	failure := (*broker.SendError)(nil)
	if !errors.As(err, &failure) || !errors.Is(failure.Failure, broker.ErrUnavailable) || failure.Field != "unique" || producer.reads != 2 {
		t.Errorf("after %d reads: %v (%+v), want the broker has not confirmed the job of the field unique", producer.reads, err, failure)
	}
}
