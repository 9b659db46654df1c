// Command enqueue measures how many jobs one producer enqueues per second with package client, waiting for the
// confirmation of each, compared with a bare JetStream publish to the same subject. With an ID, both are deduplicated.
//
//	go run ./test/bench/enqueue                          20 rounds of 5,000 jobs
//	go run ./test/bench/enqueue -rounds 5 -jobs 1000     a short run
//
// The NATS server runs in a process of its own. Both subjects send from this process, each over a connection of its
// own, in turns of 100 jobs and in random order. The target applies to the medians of the ratios of all rounds.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/client"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/jetstream"
	"github.com/yardmaster/yardmaster/test/bench/harness"
)

const (
	queueName = "orders"
	// minRatio is the target for the medians of the ratios.
	minRatio = 0.9
)

func main() { harness.RunMain(run, nil) }

func run(ctx context.Context) error {
	rounds, jobs, size := 20, 5000, 256
	harness.PositiveFlag(&rounds, "rounds", "number of measurements of each subject")
	harness.PositiveFlag(&jobs, "jobs", "number of jobs of a measurement")
	harness.PositiveFlag(&size, "bytes", "size of a payload")
	flag.Parse()
	harness.PrintMachine()
	nats, err := harness.StartNATS(ctx)
	if err != nil {
		return err
	}
	defer nats.StopAndRemove()
	b, err := connect(ctx, nats.URL, make([]byte, size), jobs)
	if err != nil {
		return err
	}
	defer b.close(context.WithoutCancel(ctx))
	results := map[string][]float64{}
	for round := range rounds + 1 {
		if err := b.measureRound(ctx, round, results); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	return report(jobs, size, rounds, results)
}

// benchmark has a connection for each subject.
type benchmark struct {
	client  *client.Client
	bare    *harness.Producer
	payload []byte
	jobs    int
}

func connect(ctx context.Context, url string, payload []byte, jobs int) (*benchmark, error) {
	engine, err := jetstream.Connect(ctx, broker.Credentials{URL: url, Name: "bench"})
	if err != nil {
		return nil, err
	}
	defer engine.Disconnect()
	config := broker.DefaultQueueConfig(queueName)
	config.Owner = broker.QueueOwner{UID: "1", Name: "bench/" + queueName}
	if _, err := engine.EnsureQueue(ctx, config); err != nil {
		return nil, err
	}
	b := &benchmark{payload: payload, jobs: jobs}
	if b.bare, err = harness.ConnectProducer(url, queueName); err != nil {
		return nil, err
	}
	if b.client, err = client.New(ctx, client.Options{Broker: client.BrokerConfig{URL: url}}); err != nil {
		b.bare.CloseConnection()
		return nil, err
	}
	return b, nil
}

func (b *benchmark) close(ctx context.Context) {
	b.bare.CloseConnection()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_ = b.client.Close(ctx) // no call is in progress
}

// The subjects.
const (
	bareSubject     = "bare publish"
	clientSubject   = "Enqueue"
	bareIDSubject   = "bare publish with an ID"
	clientIDSubject = "Enqueue with an ID"
	uniqueSubject   = "Enqueue with a unique key"
	manySubject     = "EnqueueMany"
)

// comparisons are subjects, the ones that they are compared with, and whether minRatio applies.
var comparisons = []struct {
	name, bare string
	hasTarget  bool
}{
	{bareSubject, bareSubject, true},
	{clientSubject, bareSubject, true},
	{bareIDSubject, bareIDSubject, true},
	{clientIDSubject, bareIDSubject, true},
	{uniqueSubject, bareSubject, false},
	{manySubject, bareSubject, false},
}

// chunkJobs is the number of jobs that a subject sends before the next one's turn, so that other load on the machine
// affects all of them.
const chunkJobs = 100

// measureRound appends the jobs per second of each subject, except for round 0, which warms up.
func (b *benchmark) measureRound(ctx context.Context, round int, results map[string][]float64) error {
	subjects := []subject{
		{bareSubject, func(string) error { return b.publish(ctx) }},
		{clientSubject, func(string) error { return b.enqueue(ctx) }},
		{bareIDSubject, func(id string) error { return b.publish(ctx, natsjs.WithMsgID("bare-"+id)) }},
		{clientIDSubject, func(id string) error { return b.enqueue(ctx, client.ID("client-"+id)) }},
		{uniqueSubject, func(id string) error { return b.enqueue(ctx, client.Unique(id)) }},
	}
	took := map[string]time.Duration{}
	for start := 0; start < b.jobs; start += chunkJobs {
		// In a fixed order, one would always follow the same other one, or itself.
		rand.Shuffle(len(subjects), func(i, j int) { //nolint:gosec // the order protects nothing
			subjects[i], subjects[j] = subjects[j], subjects[i]
		})
		for _, s := range subjects {
			elapsed, err := s.sendChunk(strconv.Itoa(round), start, min(start+chunkJobs, b.jobs))
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			took[s.name] += elapsed
		}
	}
	start := time.Now()
	if err := b.enqueueMany(ctx); err != nil {
		return fmt.Errorf("%s: %w", manySubject, err)
	}
	took[manySubject] = time.Since(start)
	if round > 0 {
		for name, elapsed := range took {
			results[name] = append(results[name], float64(b.jobs)/elapsed.Seconds())
		}
	}
	return b.purge(ctx)
}

// subject sends one job at a time.
type subject struct {
	name string
	send func(id string) error
}

// sendChunk sends the jobs with the numbers from start on, and returns how long that took.
func (s *subject) sendChunk(round string, start, end int) (time.Duration, error) {
	startTime := time.Now()
	for i := start; i < end; i++ {
		if err := s.send(round + "-" + strconv.Itoa(i)); err != nil {
			return 0, err
		}
	}
	return time.Since(startTime), nil
}

func (b *benchmark) publish(ctx context.Context, options ...natsjs.PublishOpt) error {
	_, err := b.bare.Publish(ctx, "yardmaster."+queueName+".ready.default", b.payload, options...)
	return err
}

func (b *benchmark) enqueue(ctx context.Context, options ...client.Option) error {
	_, err := b.client.Enqueue(ctx, queueName, b.payload, options...)
	return err
}

func (b *benchmark) enqueueMany(ctx context.Context) error {
	_, err := b.client.EnqueueMany(ctx, queueName, slices.Repeat([]client.Job{client.NewJob(b.payload)}, b.jobs))
	return err
}

// purge deletes the jobs, so that each round begins with an empty stream.
func (b *benchmark) purge(ctx context.Context) error {
	stream, err := b.bare.QueueStream(ctx)
	if err != nil {
		return err
	}
	return stream.Purge(ctx)
}

func report(jobs, size, rounds int, results map[string][]float64) error {
	fmt.Printf("\n%d jobs of %d bytes, %d rounds; medians\n", jobs, size, rounds)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tjobs per second\tratio\tsmallest\tgreatest\t")
	smallest := 1.0
	for _, comparison := range comparisons {
		var ratios []float64
		for i, rate := range results[comparison.name] {
			ratios = append(ratios, rate/results[comparison.bare][i])
		}
		fmt.Fprintf(w, "%s\t%.0f\t%.2f\t%.2f\t%.2f\t\n", comparison.name, harness.Median(results[comparison.name]),
			harness.Median(ratios), harness.Quantile(ratios, 0), harness.Quantile(ratios, 1))
		if comparison.hasTarget {
			smallest = min(smallest, harness.Median(ratios))
		}
	}
	_ = w.Flush() // it writes to standard output
	return harness.CheckTarget(fmt.Sprintf("the median ratios of Enqueue to the bare publish ≥ %.1f", minRatio), smallest >= minRatio)
}
