// Command throughput measures how many jobs without work a worker completes per second, compared with a bare consumer of the same queue that
// acknowledges each message and does nothing else.
//
//	go run ./test/bench/throughput                          10 rounds of 100,000 jobs
//	go run ./test/bench/throughput -rounds 3 -jobs 20000    a short run
//
// The NATS server runs in one process during the whole benchmark. Each subject is a process that consumes a backlog. Both subjects run once
// in each round, in alternating order, so that other load on the machine and work that the server has left affect both. The target applies to
// the median of the ratios of all rounds.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/test/bench/harness"
	"github.com/yardmaster/yardmaster/worker"
)

func main() {
	harness.RunMain(runBenchmark, map[string]harness.ProcessRole{workerSubject: runSubject, bareConsumerSubject: runSubject})
}

func runBenchmark(ctx context.Context) error {
	rounds, jobs := 10, 100_000
	harness.PositiveFlag(&rounds, "rounds", "number of measurements of each subject")
	harness.PositiveFlag(&jobs, "jobs", "number of jobs of a backlog")
	flag.Parse()
	harness.PrintMachine()
	nats := harness.StartNATS(ctx)
	defer nats.StopAndRemove()
	harness.CreateQueue(ctx, nats.URL, queueName)
	producer := harness.Must(harness.ConnectProducer(nats.URL, queueName))
	defer producer.CloseConnection()
	var all []roundResult
	for i := range rounds + 1 {
		r := measureRound(ctx, nats, producer, i, jobs)
		if i == 0 {
			continue // round 0 warms up
		}
		harness.PrintProgress("%d of %d: %.2f", i, rounds, r.throughputRatio())
		all = append(all, r)
	}
	return printReport(jobs, all)
}

// subjectUsage is what one subject used for a backlog: time, CPU time, and CPU time of the server.
type subjectUsage struct{ duration, cpu, serverCPU time.Duration }

type roundResult struct{ worker, bareConsumer subjectUsage }

func (r *roundResult) throughputRatio() float64 {
	return r.bareConsumer.duration.Seconds() / r.worker.duration.Seconds()
}

func measureRound(ctx context.Context, nats *harness.NATSProcess, producer *harness.Producer, number, jobs int) (r roundResult) {
	turns := []struct {
		subject string
		usage   *subjectUsage
	}{{workerSubject, &r.worker}, {bareConsumerSubject, &r.bareConsumer}}
	for i := range turns {
		turn := turns[(i+number)%len(turns)]
		harness.Check(producer.PublishBurst(ctx, jobs, waitTimeout))
		*turn.usage = measureSubject(ctx, nats, turn.subject, jobs)
	}
	return r
}

func measureSubject(ctx context.Context, nats *harness.NATSProcess, subject string, jobs int) (t subjectUsage) {
	before := harness.Must(harness.ProcessCPUTime(nats.Pid()))
	output := harness.Must(harness.SelfCommand(ctx, subject, nats.URL, strconv.Itoa(jobs)).Output())
	_ = harness.Must(fmt.Sscan(string(output), &t.duration, &t.cpu))
	t.serverCPU = harness.Must(harness.ProcessCPUTime(nats.Pid())) - before
	return t
}

const minThroughputRatio = 0.9

func printReport(jobs int, rounds []roundResult) error {
	fmt.Printf("\n%d jobs without work, %d rounds; medians\n", jobs, len(rounds))
	w := harness.NewTable("\tworker\tbare consumer\tratio\tsmallest\tgreatest\t")
	row := func(label, format string, value func(t *subjectUsage) float64) []float64 {
		var worker, bare, ratios []float64
		for i := range rounds {
			worker, bare = append(worker, value(&rounds[i].worker)), append(bare, value(&rounds[i].bareConsumer))
			ratios = append(ratios, worker[i]/bare[i])
		}
		fmt.Fprintf(w, "%s\t"+format+"\t"+format+"\t%.2f\t%.2f\t%.2f\t\n", label, harness.Median(worker), harness.Median(bare),
			harness.Median(ratios), harness.Quantile(ratios, 0), harness.Quantile(ratios, 1))
		return ratios
	}
	micros := func(cpu time.Duration) float64 { return float64(cpu) / float64(time.Microsecond) / float64(jobs) }
	ratios := row("jobs per second", "%.0f", func(t *subjectUsage) float64 { return float64(jobs) / t.duration.Seconds() })
	row("CPU µs per job", "%.1f", func(t *subjectUsage) float64 { return micros(t.cpu) })
	row("the server's", "%.1f", func(t *subjectUsage) float64 { return micros(t.serverCPU) })
	row("both", "%.1f", func(t *subjectUsage) float64 { return micros(t.cpu + t.serverCPU) })
	_ = w.Flush() // it writes to standard output
	return harness.CheckTarget(fmt.Sprintf("the median ratio of jobs per second ≥ %.1f", minThroughputRatio), harness.Median(ratios) >= minThroughputRatio)
}

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
	d := &doneCounter{jobs: harness.Must(strconv.ParseInt(args[2], 10, 64)), all: make(chan struct{})}
	q := harness.Must(harness.ConnectProducer(args[1], queueName))
	defer q.CloseConnection()
	cpu, startedAt := processCPUTime(), time.Now()
	start := startWorker
	if args[0] == bareConsumerSubject {
		start = startBareConsumer
	}
	end := start(ctx, args[1], d)
	harness.Check(d.waitForAll(ctx, q))
	took, cpu := time.Since(startedAt), processCPUTime()-cpu
	harness.Check(end())
	fmt.Println(took.Nanoseconds(), cpu.Nanoseconds())
	return nil
}

func startWorker(ctx context.Context, url string, d *doneCounter) (end func() error) {
	w := harness.Must(worker.New(worker.Options{
		Logger: slog.New(slog.DiscardHandler),
		Config: worker.Config{Broker: worker.BrokerConfig{URL: url}, Queues: []worker.QueueConfig{{Name: queueName}}, AdminAddress: "0"},
	}, func(context.Context, *worker.Job) error {
		d.countJob()
		return nil
	}))
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	return func() error { stop(); return <-ended }
}

// startBareConsumer starts a consumer with the defaults of the NATS library.
func startBareConsumer(ctx context.Context, url string, d *doneCounter) (end func() error) {
	q := harness.Must(harness.ConnectProducer(url, queueName))
	consuming := harness.Must(harness.Must(q.Consumer(ctx, "yardmaster_"+queueName, "default")).Consume(func(message natsjs.Msg) {
		if err := message.Ack(); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
		d.countJob()
	}))
	return func() error { consuming.Stop(); q.CloseConnection(); return nil }
}

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
func (d *doneCounter) waitForAll(ctx context.Context, q *harness.Producer) error {
	select {
	case <-d.all:
	case <-time.After(waitTimeout):
		return fmt.Errorf("%d of %d jobs are done", d.count.Load(), d.jobs)
	case <-ctx.Done():
		return ctx.Err()
	}
	for startedAt := time.Now(); time.Since(startedAt) < waitTimeout; {
		if harness.Must(q.QueueStream(ctx)).CachedInfo().State.Msgs == 0 {
			return nil
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

const (
	queueName = "orders"
	// waitTimeout bounds every wait.
	waitTimeout = 5 * time.Minute
)
