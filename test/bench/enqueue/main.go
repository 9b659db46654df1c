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
	"slices"
	"strconv"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/client"
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
	nats := harness.StartNATS(ctx)
	defer nats.StopAndRemove()
	harness.CreateQueue(ctx, nats.URL, queueName)
	b := &benchmark{payload: make([]byte, size), jobs: jobs, bare: harness.Must(harness.ConnectProducer(nats.URL, queueName))}
	defer b.bare.CloseConnection()
	b.client = harness.Must(client.New(ctx, client.Options{Broker: client.BrokerConfig{URL: nats.URL}}))
	defer func() { _ = b.client.Close(ctx) }() // no call is in progress
	results := map[string][]float64{}
	for round := range rounds + 1 {
		b.measureRound(ctx, round, results)
	}
	return report(jobs, size, rounds, results)
}

type benchmark struct {
	client  *client.Client
	bare    *harness.Producer
	payload []byte
	jobs    int
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

// chunkJobs is the number of jobs that a subject sends before the next one's turn, so that other load on the machine affects all of them.
const chunkJobs = 100

// measureRound appends the jobs per second of each subject, except for round 0, which warms up.
func (b *benchmark) measureRound(ctx context.Context, round int, results map[string][]float64) {
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
			took[s.name] += s.sendChunk(strconv.Itoa(round), start, min(start+chunkJobs, b.jobs))
		}
	}
	start := time.Now()
	_ = harness.Must(b.client.EnqueueMany(ctx, queueName, slices.Repeat([]client.Job{client.NewJob(b.payload)}, b.jobs)))
	took[manySubject] = time.Since(start)
	if round > 0 {
		for name, elapsed := range took {
			results[name] = append(results[name], float64(b.jobs)/elapsed.Seconds())
		}
	}
	harness.Check(harness.Must(b.bare.QueueStream(ctx)).Purge(ctx)) // each round starts with an empty stream
}

type subject struct {
	name string
	send func(id string) error
}

// sendChunk sends the jobs with the numbers from start on, and returns how long that took.
func (s *subject) sendChunk(round string, start, end int) time.Duration {
	startTime := time.Now()
	for i := start; i < end; i++ {
		harness.Check(s.send(round + "-" + strconv.Itoa(i)))
	}
	return time.Since(startTime)
}

func (b *benchmark) publish(ctx context.Context, options ...natsjs.PublishOpt) error {
	_, err := b.bare.Publish(ctx, "yardmaster."+queueName+".ready.default", b.payload, options...)
	return err
}

func (b *benchmark) enqueue(ctx context.Context, options ...client.Option) error {
	_, err := b.client.Enqueue(ctx, queueName, b.payload, options...)
	return err
}

func report(jobs, size, rounds int, results map[string][]float64) error {
	fmt.Printf("\n%d jobs of %d bytes, %d rounds; medians\n", jobs, size, rounds)
	w := harness.NewTable("\tjobs per second\tratio\tsmallest\tgreatest\t")
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
