// Package clienttest has queues on a NATS server in the process of a test, for tests of programs that send jobs with
// package client. The server listens on no port, keeps nothing on disk after the test, and stops with the test.
//
//	queues := clienttest.New(t, clienttest.Queue{Name: "mail"})
//	shop := newShop(queues.Connect(client.Options{}))
//	shop.Order(7)
//	if jobs := queues.Jobs("mail"); len(jobs) != 1 { … }
//
// Run runs the jobs that are due with a handler of package worker, and Advance sets the clock ahead, so that delayed jobs and retries are
// due.
package clienttest

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/client"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/construct"
	engine "github.com/yardmaster/yardmaster/internal/broker/jetstream"
	"github.com/yardmaster/yardmaster/worker"
)

// Queue is the configuration of a queue.
type Queue struct {
	Name string
	// Priorities, the most urgent first. The default is one priority, "default".
	Priorities []string
	// MaxBacklog is the number of jobs from which on the queue rejects new jobs. 0 means no limit. A queue with a limit delays no jobs.
	MaxBacklog int64
	// MaxAttempts is the number of attempts, including the first. The default is 5.
	MaxAttempts int
	// Results is how long the states of jobs are kept, at least a minute. The default is not at all.
	Results time.Duration
}

// Queues are queues on a server of the test. Their methods are safe for concurrent use, and fail the test if their arguments are invalid.
type Queues struct {
	t      testing.TB
	server *server.Server
	engine broker.Engine
	js     jetstream.JetStream
	queues map[string]*queue
	// isUnavailable: clients cannot reach the server.
	isUnavailable atomic.Bool
	// ahead is how far the clock is ahead.
	ahead atomic.Int64
	// mu guards the jobs of all queues.
	mu sync.Mutex
}

// serverTimeout bounds the start of the server, and the creation of queues.
const serverTimeout = time.Minute

// New starts a server with queues, which stops when the test ends.
func New(t testing.TB, queues ...Queue) *Queues {
	t.Helper()
	q := &Queues{t: t, queues: map[string]*queue{}}
	var err error
	q.server, err = server.NewServer(&server.Options{
		DontListen: true, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true, AuthTimeout: serverTimeout.Seconds(),
	})
	q.require(err)
	q.server.Start()
	t.Cleanup(func() {
		q.server.Shutdown()
		q.server.WaitForShutdown()
	})
	if !q.server.ReadyForConnections(serverTimeout) {
		t.Fatal("clienttest: the server does not start")
	}
	connection, err := nats.Connect("", nats.InProcessServer(q.server))
	q.require(err)
	t.Cleanup(connection.Close)
	q.js, err = jetstream.New(connection)
	q.require(err)
	q.engine = q.connect()
	ctx, cancel := context.WithTimeout(context.Background(), serverTimeout)
	defer cancel()
	for _, queue := range queues {
		q.require(q.add(ctx, queue))
	}
	return q
}

func (q *Queues) require(err error) {
	q.t.Helper()
	if err != nil {
		q.t.Fatalf("clienttest: %v", err)
	}
}

// connect opens a connection that is closed when the test ends.
func (q *Queues) connect() broker.Engine {
	q.t.Helper()
	connected, err := engine.Connect(context.Background(), broker.Credentials{
		URL: "nats://in-process", Name: "test", Dial: func(context.Context, string, string) (net.Conn, error) { return q.server.InProcessConn() },
	})
	q.require(err)
	q.t.Cleanup(connected.Disconnect)
	return connected
}

func (q *Queues) add(ctx context.Context, from Queue) (err error) {
	config := broker.DefaultQueueConfig(from.Name)
	config.Owner = broker.QueueOwner{UID: "test", Name: "test/" + from.Name}
	config.MaxBacklog, config.Storage.Type = from.MaxBacklog, broker.StorageMemory
	config.Lease, config.Retry.JitterPercent = broker.MaxLease, 0
	if from.Results != 0 {
		config.Results = broker.ResultsConfig{Retention: from.Results, MaxBytes: broker.DefaultResultsBytes}
		config.Lease = min(config.Lease, max(from.Results, broker.MinResultsRetention))
	}
	if from.MaxAttempts != 0 {
		config.Retry.MaxAttempts = from.MaxAttempts
	}
	if len(from.Priorities) > 0 {
		config.Priorities = nil
	}
	for _, name := range from.Priorities {
		config.Priorities = append(config.Priorities, broker.Priority{Name: name, Weight: 1})
	}
	if _, err := q.engine.EnsureQueue(ctx, config); err != nil {
		return err
	}
	added := &queue{Queues: q, config: config, consumers: map[string]broker.Consumer{}}
	if added.stream, err = q.js.Stream(ctx, "yardmaster_"+from.Name); err != nil {
		return err
	}
	if added.postponed, err = q.js.Stream(ctx, "yardmaster_"+from.Name+"_delayed"); err != nil {
		return err
	}
	if added.Subscription, err = q.engine.Subscribe(ctx, from.Name); err != nil {
		return err
	}
	for _, priority := range config.Priorities {
		if added.consumers[priority.Name], err = added.Consumer(ctx, priority.Name); err != nil {
			return err
		}
	}
	q.queues[from.Name] = added
	return nil
}

func (q *Queues) queue(name string) *queue {
	q.t.Helper()
	if q.queues[name] == nil {
		q.t.Fatalf("clienttest: no queue %s", name)
	}
	return q.queues[name]
}

// Connect returns a client of the queues, as client.New does. It ignores Broker and Name of the options.
func (q *Queues) Connect(options client.Options) *client.Client {
	q.t.Helper()
	producer := q.connect().(broker.Producer) //nolint:forcetypeassert // the engine implements it
	c, err := construct.Client(options, producer, q.Now, func() error {
		if q.isUnavailable.Load() {
			return errors.New("the broker is unavailable")
		}
		return nil
	})
	q.require(err)
	return c.(*client.Client) //nolint:forcetypeassert // package client returns no other type
}

// Now returns the time of the clock of the queues.
func (q *Queues) Now() time.Time { return time.Now().Add(time.Duration(q.ahead.Load())) }

// Advance sets the clock of the queues ahead: delayed jobs and retries are due earlier. It does not change how long the server recognizes
// an ID, and keeps unique keys and the states of jobs.
func (q *Queues) Advance(by time.Duration) { q.ahead.Add(int64(by)) }

// Drain makes a queue reject new jobs, as while its Queue is being deleted.
func (q *Queues) Drain(queue string) {
	q.t.Helper()
	q.require(q.engine.RejectNewMessages(context.Background(), queue, q.queue(queue).config.Owner))
}

// SetUnavailable makes calls of clients fail with client.ErrUnavailable, or succeed again.
func (q *Queues) SetUnavailable(unavailable bool) { q.isUnavailable.Store(unavailable) }

// Job is a job that is not done.
type Job struct {
	// ID, Kind, Priority, Payload and Headers that the handler receives.
	ID, Kind, Priority string
	Payload            []byte
	Headers            map[string][]string
	// SentTime is when the job was sent, DueTime when workers may start it; zero means at once.
	SentTime, DueTime time.Time
	// Attempts is the number of attempts that have failed.
	Attempts int
	// Error is why the last attempt of a dead letter failed.
	Error string
}

// Jobs returns the jobs of a queue that are not done and do not run, in the order in which they were sent or failed.
func (q *Queues) Jobs(queue string) []Job {
	q.t.Helper()
	jobs, err := q.queue(queue).list(context.Background())
	q.require(err)
	return jobs
}

// DeadLetters returns the jobs of a queue that are not retried, oldest first.
func (q *Queues) DeadLetters(queue string) []Job {
	q.t.Helper()
	found := q.queue(queue)
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(found.letters)
}

// Run runs the jobs of a queue that are due now, one after the other, the most urgent priority first, and returns the number of attempts.
// Results of the handler have the same effect as in a worker: a job that fails is due again after the delay of the default retry policy,
// without its random part, and is a dead letter after the last attempt. Call Advance and Run again for the next attempt. A job that waits
// for other jobs, because of its unique key or its batch, runs in a later call. A job that is put back without a delay runs in the next
// call.
func (q *Queues) Run(ctx context.Context, queue string, handler worker.Handler) (attempts int) {
	q.t.Helper()
	attempts, err := q.queue(queue).run(ctx, handler)
	q.require(err)
	return attempts
}
