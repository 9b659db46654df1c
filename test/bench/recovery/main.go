// Command recovery measures how soon the operator sees what is new after the API server was
// away, on a real control plane that is killed and started again.
//
//	go run ./test/bench/recovery                                 5 outages each of 2, 20, 60 and 100 s
//	go run ./test/bench/recovery -outages 2s,20s -times 10
//
// The operator is run as it is built, with all its controllers, and is left alone. As soon as
// /readyz says that the API server is back, an object of each kind is made, and the clock runs
// until a watch shows what its controller made of it. JobReports are of no kind that is watched.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/yardmaster/yardmaster/test/bench/harness"
)

func main() { harness.RunMain(runBenchmark, nil) }

func runBenchmark(ctx context.Context) error {
	outages := flag.String("outages", "2s,20s,60s,100s", "how long the API server is away, besides the time that it takes to start")
	times := flag.Int("times", 5, "how often it is away for each")
	kubeconfig := flag.String("kubeconfig", "", "a local cluster that is up; empty: one of its own")
	flag.Parse()
	if *times < 1 {
		return errors.New("-times must be at least 1")
	}
	var durations []time.Duration
	for text := range strings.SplitSeq(*outages, ",") {
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("-outages: %w", err)
		}
		durations = append(durations, d)
	}
	c, end, err := harness.OpenCluster(ctx, *kubeconfig)
	if err != nil {
		return err
	}
	defer end()
	return measureOutages(ctx, c, durations, *times)
}

func measureOutages(ctx context.Context, c *harness.Cluster, outages []time.Duration, times int) error {
	binary, err := harness.BuildOperator(ctx)
	if err != nil {
		return err
	}
	harness.PrintMachine()
	env := environment{Environment: "bench-recovery"}
	if err := env.createObjects(ctx, c); err != nil {
		return fmt.Errorf("opening the yard: %w", err)
	}
	operator, err := harness.StartOperator(ctx, binary, c, "--namespaces", string(env.Environment))
	if err != nil {
		return err
	}
	defer harness.TerminateProcess(operator)
	var results []outageResult
	for _, outage := range outages {
		for i := range times {
			r, err := env.measureOutage(ctx, c, outage)
			if err != nil {
				return fmt.Errorf("outage %d of %s: %w", i+1, outage, err)
			}
			fmt.Fprintf(os.Stderr, "  %s, %d of %d: away for %.1f s, then %s\n", outage, i+1, times, r.downtime.Seconds(), r.describeSlowest())
			results = append(results, r)
		}
	}
	return printReport(outages, results)
}
