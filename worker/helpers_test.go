package worker

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/jetstream"
	"github.com/yardmaster/yardmaster/internal/broker/jetstream/natstest"
)

// bench is a real server with queues, and someone who sends to them.
type bench struct {
	t      testing.TB
	server *natstest.Server
	engine broker.Engine
	js     natsjs.JetStream
}

func newBench(t testing.TB, changes ...func(*broker.QueueConfig)) *bench {
	t.Helper()
	b := &bench{t: t, server: natstest.Start(t)}
	var err error
	if b.engine, err = jetstream.Connect(t.Context(), broker.Credentials{URL: b.server.ClientURL(), Name: "test"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.engine.Disconnect)
	nc, err := nats.Connect(b.server.ClientURL(), nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if b.js, err = natsjs.New(nc, natsjs.WithPublishAsyncMaxPending(1000)); err != nil {
		t.Fatal(err)
	}
	b.queue("orders", changes...)
	return b
}

// queue makes a queue, or changes it.
func (b *bench) queue(name string, changes ...func(*broker.QueueConfig)) {
	b.t.Helper()
	q := broker.DefaultQueueConfig(name)
	q.Owner = broker.QueueOwner{UID: "1", Name: "ns/" + name}
	for _, change := range changes {
		change(&q)
	}
	if _, err := b.engine.EnsureQueue(b.t.Context(), q); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) send(priority string, payloads ...string) {
	b.t.Helper()
	b.sendTo("orders", priority, payloads...)
}

func (b *bench) sendTo(queue, priority string, payloads ...string) {
	b.t.Helper()
	patient := natsjs.WithStallWait(20 * time.Second) // the server may be slow while others are tested
	for _, payload := range payloads {
		if _, err := b.js.PublishAsync("yardmaster."+queue+".ready."+priority, []byte(payload), patient); err != nil {
			b.t.Fatal(err)
		}
	}
	<-b.js.PublishAsyncComplete()
}

// numbered are that many payloads.
func numbered(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprint(i)
	}
	return all
}

func (b *bench) figures() broker.QueueStats {
	b.t.Helper()
	f, err := b.engine.Stats(b.t.Context(), "orders")
	if err != nil {
		b.t.Fatal(err)
	}
	return f
}

// empty tells whether nothing is left to do.
func (b *bench) empty() bool {
	f := b.figures()
	return f.Ready+f.InFlight+f.Delayed == 0
}

func (b *bench) config(changes ...func(*Config)) Config {
	c := Config{Broker: Broker{URL: b.server.ClientURL()}, Queues: []Queue{{Name: "orders"}}, AdminAddress: "0"}
	for _, change := range changes {
		change(&c)
	}
	return c
}

// started is a worker that runs.
type started struct {
	*Worker
	stop context.CancelFunc
	done chan error
}

func (b *bench) start(c Config, handler Handler) *started {
	b.t.Helper()
	return b.startWith(Options{Config: c}, handler)
}

func (b *bench) startWith(o Options, handler Handler) *started {
	b.t.Helper()
	o.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	w, err := New(o, handler)
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &started{w, stop, make(chan error, 1)}
	go func() { s.done <- w.Run(ctx) }()
	b.t.Cleanup(func() { stop() })
	return s
}

// end ends the worker and waits for it.
func (s *started) end(t testing.TB) error {
	t.Helper()
	s.stop()
	select {
	case err := <-s.done:
		return err
	case <-time.After(20 * time.Second):
		t.Fatal("the worker does not end")
		return nil
	}
}

// eventually asks until it is so: what others do by themselves has no other end.
func eventually(t testing.TB, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !so(); {
		if time.Now().After(deadline) {
			t.Fatalf("not in 20 s: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// ledger remembers jobs in the order in which they were begun.
type ledger struct {
	mu   sync.Mutex
	jobs []Job
}

func (l *ledger) add(job *Job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.jobs = append(l.jobs, *job)
}

func (l *ledger) all() []Job {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Job(nil), l.jobs...)
}

func (l *ledger) count() int { return len(l.all()) }

func (w *Worker) counted(t testing.TB, result string) int {
	t.Helper()
	families, err := w.metrics.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "yardmaster_worker_jobs_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			if m.GetLabel()[0].GetValue() == result {
				return int(m.GetCounter().GetValue())
			}
		}
	}
	return 0
}
