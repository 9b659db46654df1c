package client

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/dial"
	"github.com/yardmaster/yardmaster/internal/broker/jetstream/natstest"
	"github.com/yardmaster/yardmaster/internal/broker/memory"
	"github.com/yardmaster/yardmaster/internal/broker/redisclient/redistest"
	"github.com/yardmaster/yardmaster/test/poll"
)

// testTimeout bounds the calls of tests: a busy machine needs many times as long as an idle one.
const testTimeout = 5 * time.Minute

// testEnv is a broker with the queue "orders", and a client of it.
type testEnv struct {
	*Client

	t       testing.TB
	options Options
	engine  dial.EngineName
	// admin creates queues; messages receives what they have.
	admin    admin
	messages broker.Engine
	// memory is nil on real engines.
	memory *memory.Broker
	// server of NATS; nil on other engines.
	server *natstest.Server
	// redis is nil on other engines than asynq.
	redis *redistest.Server
	// config is that of the queue "orders".
	config broker.QueueConfig
	// stop and restart the server.
	stop, restart func()
}

var owner = broker.QueueOwner{UID: "1", Name: "ns/orders", Cluster: "c"}

// admin is what broker.Engine and memory.Broker have.
type admin interface {
	EnsureQueue(ctx context.Context, queue broker.QueueConfig) (broker.EnsureResult, error)
	RejectNewMessages(ctx context.Context, queue string, owner broker.QueueOwner) error
	Stats(ctx context.Context, queue string) (broker.QueueStats, error)
}

// memoryEngine is that of package clienttest.
const memoryEngine dial.EngineName = memory.EngineName

// engines start a broker of each engine.
var engines = map[dial.EngineName]func(testing.TB) *testEnv{
	dial.NATSEngine: func(t testing.TB) *testEnv {
		s := natstest.Start(t)
		return &testEnv{server: s, engine: dial.NATSEngine, options: Options{Broker: BrokerConfig{URL: "nats://" + s.Address()}}, stop: s.Stop, restart: s.Restart}
	},
	dial.AsynqEngine: func(t testing.TB) *testEnv {
		s := redistest.Start(t)
		return &testEnv{redis: s, engine: dial.AsynqEngine, options: Options{Broker: BrokerConfig{URL: s.URL()}}, stop: s.Stop, restart: s.Restart}
	},
	memoryEngine: func(testing.TB) *testEnv {
		b := memory.New()
		return &testEnv{
			engine: memoryEngine, memory: b, admin: b,
			stop: func() { b.SetUnavailable(true) }, restart: func() { b.SetUnavailable(false) },
		}
	},
}

// onEachEngine runs a test with a broker of each engine.
func onEachEngine(t *testing.T, test func(*testing.T, *testEnv)) {
	t.Parallel()
	for name := range engines {
		t.Run(string(name), func(t *testing.T) {
			t.Parallel()
			test(t, newTestEnv(t, name))
		})
	}
}

func newTestEnv(t testing.TB, engine dial.EngineName, changes ...func(*broker.QueueConfig)) *testEnv {
	t.Helper()
	env := engines[engine](t)
	env.t, env.options.Timeout = t, testTimeout
	if env.memory == nil {
		var err error
		if env.messages, err = dial.Connect(t.Context(), engine, broker.Credentials{URL: env.options.Broker.URL, Name: "test"}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(env.messages.Disconnect)
		env.admin = env.messages
	}
	env.ensureQueue("orders", changes...)
	env.Client = env.connect(env.options)
	return env
}

func (env *testEnv) connect(options Options) *Client {
	env.t.Helper()
	if env.memory != nil {
		return newClient(&options, env.memory.Connect(), memoryEngine)
	}
	c, err := New(env.t.Context(), options)
	if err != nil {
		env.t.Fatal(err)
	}
	env.t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

func (env *testEnv) ensureQueue(name string, changes ...func(*broker.QueueConfig)) {
	env.t.Helper()
	q := broker.DefaultQueueConfig(name)
	q.Owner = owner
	for _, change := range changes {
		change(&q)
	}
	env.config = q
	if _, err := env.admin.EnsureQueue(env.t.Context(), q); err != nil {
		env.t.Fatal(err)
	}
}

// advance waits for a time by the clock of the broker, which it can set ahead in memory only.
func (env *testEnv) advance(by time.Duration) {
	if env.memory != nil {
		env.memory.Advance(by)
	}
}

// enqueue sends a job to the queue "orders".
func (env *testEnv) enqueue(payload string, options ...Option) Receipt {
	env.t.Helper()
	receipt, err := env.Enqueue(env.t.Context(), "orders", []byte(payload), options...)
	if err != nil {
		env.t.Fatal(err)
	}
	return receipt
}

// consume returns a function that receives and acknowledges the next message of the queue "orders", which the test
// waits for.
func (env *testEnv) consume(priority string) (next func() *broker.Message) {
	env.t.Helper()
	if env.memory != nil {
		return func() *broker.Message { return env.consumeFromMemory(priority) }
	}
	subscription, err := env.messages.Subscribe(env.t.Context(), "orders")
	if err != nil {
		env.t.Fatal(err)
	}
	consumer, err := subscription.Consumer(env.t.Context(), priority)
	if err != nil {
		env.t.Fatal(err)
	}
	env.t.Cleanup(consumer.Stop)
	return func() *broker.Message {
		env.t.Helper()
		var message *broker.Message
		poll.Until(env.t, "a message", func() bool {
			_, err := consumer.Next(env.t.Context(), time.Second, func(d broker.Delivery) {
				message = d.Message()
				go func() { _ = d.Ack(context.Background(), true) }()
			})
			if err != nil {
				env.t.Fatal(err)
			}
			return message != nil
		})
		return message
	}
}

// consumeFromMemory returns the next message, which must have the priority.
func (env *testEnv) consumeFromMemory(priority string) (message *broker.Message) {
	env.t.Helper()
	poll.Until(env.t, "the queue to have a job that is due", func() bool {
		taken, found := env.memory.Take("orders", env.memory.Now())
		if !found {
			return false
		}
		if taken.Priority != priority {
			env.t.Fatalf("the next job has the priority %s", taken.Priority)
		}
		message = &taken.Message
		return true
	})
	return message
}

// stats of the queue "orders".
func (env *testEnv) stats() broker.QueueStats {
	env.t.Helper()
	stats, err := env.admin.Stats(env.t.Context(), "orders")
	if err != nil {
		env.t.Fatal(err)
	}
	return stats
}

// requireError fails the test unless err is an *Error with that reason and field.
func requireError(t testing.TB, err, reason error, field string) {
	t.Helper()
	failure := (*Error)(nil)
	if !errors.As(err, &failure) || !errors.Is(err, reason) || !errors.Is(failure.Reason, reason) || failure.Field != field {
		t.Errorf("error %v (%+v), want %v of the field %q", err, failure, reason, field)
	}
}
