package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/worker"
)

// Roles of the measured processes.
const (
	workerSubject       = "worker"
	bareConsumerSubject = "bare-consumer"
)

// runSubject consumes a backlog, and prints the duration and the CPU time of this process in nanoseconds.
func runSubject(ctx context.Context, args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("%s URL JOBS", args[0])
	}
	jobs, err := strconv.ParseInt(args[2], 10, 64)
	if err != nil {
		return err
	}
	q, err := connectToQueue(args[1])
	if err != nil {
		return err
	}
	defer q.CloseConnection()
	d := &doneCounter{jobs: jobs, all: make(chan struct{})}
	cpu, startedAt := processCPUTime(), time.Now()
	start := startWorker
	if args[0] == bareConsumerSubject {
		start = startBareConsumer
	}
	end, err := start(ctx, args[1], d)
	if err != nil {
		return err
	}
	if err := d.waitForAll(ctx, q); err != nil {
		return err
	}
	took, cpu := time.Since(startedAt), processCPUTime()-cpu
	if err := end(); err != nil {
		return err
	}
	fmt.Println(took.Nanoseconds(), cpu.Nanoseconds())
	return nil
}

// startWorker starts a worker with the default configuration.
func startWorker(ctx context.Context, url string, d *doneCounter) (end func() error, err error) {
	w, err := worker.New(worker.Options{
		Logger: slog.New(slog.DiscardHandler),
		Config: worker.Config{Broker: worker.BrokerConfig{URL: url}, Queues: []worker.QueueConfig{{Name: queueName}}, AdminAddress: "0"},
	}, func(context.Context, *worker.Job) error {
		d.countJob()
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

// startBareConsumer starts a consumer with the defaults of the NATS library.
func startBareConsumer(ctx context.Context, url string, d *doneCounter) (end func() error, err error) {
	q, err := connectToQueue(url)
	if err != nil {
		return nil, err
	}
	consumer, err := q.Consumer(ctx, streamName, priorityName)
	if err != nil {
		return nil, err
	}
	consuming, err := consumer.Consume(func(message natsjs.Msg) {
		if err := message.Ack(); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
		d.countJob()
	})
	if err != nil {
		return nil, err
	}
	return func() error { consuming.Stop(); q.CloseConnection(); return nil }, nil
}

// doneCounter counts completed jobs.
type doneCounter struct {
	jobs  int64
	count atomic.Int64
	all   chan struct{}
}

func (d *doneCounter) countJob() {
	if d.count.Add(1) == d.jobs {
		close(d.all)
	}
}

// waitForAll waits until all jobs are done and the server has received their acknowledgements.
func (d *doneCounter) waitForAll(ctx context.Context, q *benchmarkQueue) error {
	select {
	case <-d.all:
	case <-time.After(waitTimeout):
		return fmt.Errorf("%d of %d jobs are done", d.count.Load(), d.jobs)
	case <-ctx.Done():
		return ctx.Err()
	}
	for startedAt := time.Now(); time.Since(startedAt) < waitTimeout; {
		left, err := q.unacknowledgedCount(ctx)
		if left == 0 || err != nil {
			return err
		}
	}
	return errors.New("some jobs are not acknowledged")
}

// processCPUTime returns the CPU time of this process. Unlike elapsed time, it hardly depends on other load of the machine.
func processCPUTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0 // it cannot fail for the calling process
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
