// Command throughput measures how many jobs that take no time a worker does in a second,
// next to a bare consumer of the same queue that acknowledges each message and does nothing
// else.
//
//	go run ./test/bench/throughput                          10 rounds of 100,000 jobs
//	go run ./test/bench/throughput -rounds 3 -jobs 20000    a short look
//	go run ./test/bench/throughput -profile dist/worker     and CPU profiles of each worker
//
// The NATS server is one process all the while; each contestant is another, which finds a
// backlog and works it off. In each round each has its turn, the worker first in every
// other: what the machine does beside it, and what the server has to clear up, meets both.
// The ratio is taken round by round, and its median counts.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/yardmaster/yardmaster/test/bench/harness"
)

func main() {
	harness.RunMain(runBenchmark, map[string]harness.ProcessRole{workerSubject: runSubject, bareConsumerSubject: runSubject})
}

func runBenchmark(ctx context.Context) error {
	rounds := flag.Int("rounds", 10, "how often each is measured")
	jobs := flag.Int("jobs", 100_000, "jobs of a backlog")
	profile := flag.String("profile", "", "where to write CPU profiles of the workers, as NAME-ROUND.pprof; empty: nowhere")
	flag.Parse()
	if *rounds < 1 || *jobs < 1 {
		return errors.New("-rounds and -jobs must be at least 1")
	}
	return measureRounds(ctx, *rounds, *jobs, *profile)
}

func measureRounds(ctx context.Context, rounds, jobs int, profile string) error {
	harness.PrintMachine()
	nats, err := harness.StartNATS(ctx)
	if err != nil {
		return err
	}
	defer nats.StopAndRemove()
	q, err := createQueue(ctx, nats.URL, nats.Pid())
	if err != nil {
		return err
	}
	defer q.closeConnection()
	var results []roundResult
	for i := range rounds + 1 {
		r, err := q.measureRound(ctx, i, jobs, profile)
		if err != nil {
			return fmt.Errorf("round %d: %w", i, err)
		}
		if i == 0 {
			continue // it is for warming up
		}
		fmt.Fprintf(os.Stderr, "  %d of %d: %.2f\n", i, rounds, r.throughputRatio())
		results = append(results, r)
	}
	return printReport(jobs, results)
}
