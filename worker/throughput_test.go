package worker

import (
	"context"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// BenchmarkThroughput does jobs that take no time, of a backlog that is already there:
// with a worker, and with a bare consumer of the same queue that acknowledges each
// message and does nothing else.
//
//	go test -run '^$' -bench Throughput -benchtime 200000x -count 5 ./worker
func BenchmarkThroughput(b *testing.B) {
	b.Run("bare", func(b *testing.B) {
		s := newBench(b)
		s.send("default", make([]string, b.N)...)
		nc, err := nats.Connect(s.server.ClientURL())
		if err != nil {
			b.Fatal(err)
		}
		defer nc.Close()
		js, err := natsjs.New(nc)
		if err != nil {
			b.Fatal(err)
		}
		consumer, err := js.Consumer(b.Context(), "yardmaster_orders", "default")
		if err != nil {
			b.Fatal(err)
		}
		d := newDone(b)
		b.ResetTimer()
		consuming, err := consumer.Consume(func(message natsjs.Msg) {
			if err := message.Ack(); err != nil {
				b.Error(err)
			}
			d.one()
		})
		if err != nil {
			b.Fatal(err)
		}
		d.wait(s)
		consuming.Stop()
	})
	b.Run("worker", func(b *testing.B) {
		s := newBench(b)
		s.send("default", make([]string, b.N)...)
		d := newDone(b)
		b.ResetTimer()
		w := s.start(s.config(), func(context.Context, *Job) error {
			d.one()
			return nil
		})
		d.wait(s)
		if err := w.end(b); err != nil {
			b.Fatal(err)
		}
	})
}

// done counts to b.N.
type done struct {
	b     *testing.B
	cpu   time.Duration
	count atomic.Int64
	all   chan struct{}
}

func newDone(b *testing.B) *done { return &done{b: b, cpu: cpu(b), all: make(chan struct{})} }

// cpu is the time that this process, the server in it too, has computed: unlike the time
// that passes it does not depend on what else the machine does.
func cpu(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func (d *done) one() {
	if d.count.Add(1) == int64(d.b.N) {
		close(d.all)
	}
}

// wait waits for all jobs, and until the server has their acknowledgements.
func (d *done) wait(s *bench) {
	<-d.all
	eventually(d.b, "all are acknowledged", s.empty)
	d.b.StopTimer()
	d.b.ReportMetric(float64((cpu(d.b)-d.cpu).Nanoseconds())/float64(d.b.N), "cpu-ns/job")
	d.b.ReportMetric(float64(d.b.N)/d.b.Elapsed().Seconds(), "jobs/s")
}
