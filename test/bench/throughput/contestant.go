package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/pprof"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/yardmaster/yardmaster/worker"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// The contestants: each, as the first argument, makes this program that one.
const (
	ours = "worker"
	bare = "bare-consumer"
)

// runContestant works off a backlog, and prints how long that took and what this process
// has computed meanwhile, in nanoseconds.
func runContestant(ctx context.Context, args []string) error {
	if len(args) != 4 {
		return fmt.Errorf("%s URL JOBS PROFILE", args[0])
	}
	jobs, err := strconv.ParseInt(args[2], 10, 64)
	if err != nil {
		return err
	}
	q, err := findQueue(args[1])
	if err != nil {
		return err
	}
	defer q.close()
	endProfile, err := startProfile(args[3])
	if err != nil {
		return err
	}
	defer endProfile()
	contest := workerDoes
	if args[0] == bare {
		contest = bareDoes
	}
	d := &done{jobs: jobs, all: make(chan struct{})}
	cpu, begun := computed(), time.Now()
	end, err := contest(ctx, args[1], d)
	if err != nil {
		return err
	}
	if err := d.wait(ctx, q); err != nil {
		return err
	}
	took, cpu := time.Since(begun), computed()-cpu
	if err := end(); err != nil {
		return err
	}
	fmt.Println(took.Nanoseconds(), cpu.Nanoseconds())
	return nil
}

func startProfile(path string) (end func(), err error) {
	if path == "" {
		return func() {}, nil
	}
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, err
	}
	return func() {
		pprof.StopCPUProfile()
		if err := file.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
	}, nil
}

// workerDoes has a worker begin.
func workerDoes(ctx context.Context, url string, d *done) (end func() error, err error) {
	w, err := worker.New(worker.Options{
		Logger: slog.New(slog.DiscardHandler),
		Config: worker.Config{Broker: worker.BrokerConfig{URL: url}, Queues: []worker.QueueConfig{{Name: name}}, AdminAddress: "0"},
	}, func(context.Context, *worker.Job) error {
		d.one()
		return nil
	})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	return func() error { stop(); return <-ended }, nil
}

// bareDoes has a bare consumer begin, with all that its library has it do by default.
func bareDoes(ctx context.Context, url string, d *done) (end func() error, err error) {
	q, err := findQueue(url)
	if err != nil {
		return nil, err
	}
	consumer, err := q.js.Consumer(ctx, stream, priority)
	if err != nil {
		return nil, err
	}
	consuming, err := consumer.Consume(func(message natsjs.Msg) {
		if err := message.Ack(); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
		d.one()
	})
	if err != nil {
		return nil, err
	}
	return func() error { consuming.Stop(); q.close(); return nil }, nil
}

// done counts jobs.
type done struct {
	jobs  int64
	count atomic.Int64
	all   chan struct{}
}

func (d *done) one() {
	if d.count.Add(1) == d.jobs {
		close(d.all)
	}
}

// wait waits for all jobs, and until the server has their acknowledgements.
func (d *done) wait(ctx context.Context, q *queue) error {
	select {
	case <-d.all:
	case <-time.After(patience):
		return fmt.Errorf("%d of %d jobs are done", d.count.Load(), d.jobs)
	case <-ctx.Done():
		return ctx.Err()
	}
	for begun := time.Now(); time.Since(begun) < patience; {
		left, err := q.left(ctx)
		if left == 0 || err != nil {
			return err
		}
	}
	return errors.New("some jobs are not acknowledged")
}

// computed is the time that this process has computed: unlike the time that passes it
// hardly depends on what else the machine does.
func computed() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0 // it cannot fail for oneself
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
