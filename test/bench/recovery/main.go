// Command recovery measures how soon the operator reconciles new objects after an outage of the
// API server, on a real control plane that is killed and restarted.
//
//	go run ./test/bench/recovery                                 5 outages each of 2, 20, 60 and 100 s
//	go run ./test/bench/recovery -outages 2s,20s -times 10
//
// It runs a release build of the operator with all its controllers, which keeps running during
// the outages. As soon as /readyz of the API server succeeds, the benchmark creates an object
// of each kind and measures the time until a watch shows that its controller has reconciled it.
// JobReports are not measured, because the operator does not watch them.
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
	outages := flag.String("outages", "2s,20s,60s,100s", "comma-separated durations of outages, without the start of the API server")
	times := flag.Int("times", 5, "number of outages of each duration")
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig of a running local cluster; if empty, one is started")
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
		return fmt.Errorf("creating the environment: %w", err)
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
			fmt.Fprintf(os.Stderr, "  %s, %d of %d: down for %.1f s, then %s\n", outage, i+1, times, r.downtime.Seconds(), r.describeSlowest())
			results = append(results, r)
		}
	}
	return printReport(outages, results)
}
