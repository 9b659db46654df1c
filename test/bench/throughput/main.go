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
	"flag"
	"fmt"

	"github.com/yardmaster/yardmaster/test/bench/harness"
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
	nats, err := harness.StartNATS(ctx)
	if err != nil {
		return err
	}
	defer nats.StopAndRemove()
	q, err := createQueue(ctx, nats.URL, nats.Pid())
	if err != nil {
		return err
	}
	defer q.CloseConnection()
	var all []roundResult
	for i := range rounds + 1 {
		r, err := q.measureRound(ctx, i, jobs)
		if err != nil {
			return fmt.Errorf("round %d: %w", i, err)
		}
		if i == 0 {
			continue // round 0 warms up
		}
		harness.PrintProgress("%d of %d: %.2f", i, rounds, r.throughputRatio())
		all = append(all, r)
	}
	return printReport(jobs, all)
}
