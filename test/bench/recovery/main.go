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
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/yardmaster/yardmaster/test/bench/harness"
	"github.com/yardmaster/yardmaster/test/testenv"
)

func main() {
	b := &benchmark{durations: []time.Duration{2 * time.Second, 20 * time.Second, time.Minute, 100 * time.Second}, times: 5}
	flag.Func("outages", "comma-separated durations of outages, without the start of the API server (default 2s,20s,60s,100s)", b.parseDurations)
	harness.PositiveFlag(&b.times, "times", "number of outages of each duration")
	harness.RunOnCluster(b.measureOutages)
}

// benchmark has the values of the flags.
type benchmark struct {
	durations []time.Duration
	times     int
}

func (b *benchmark) parseDurations(text string) error {
	b.durations = nil
	for part := range strings.SplitSeq(text, ",") {
		d, err := time.ParseDuration(part)
		if err != nil {
			return err
		}
		b.durations = append(b.durations, d)
	}
	return nil
}

func (b *benchmark) measureOutages(ctx context.Context, c *harness.Cluster, operatorBinary string) error {
	env := environment{Environment: "bench-recovery"}
	if err := env.createObjects(ctx, c); err != nil {
		return fmt.Errorf("creating the environment: %w", err)
	}
	operator, err := testenv.StartOperator(ctx, operatorBinary, c.Cluster, "--namespaces", string(env.Environment))
	if err != nil {
		return err
	}
	defer operator.Stop()
	var results []outageResult
	for _, outage := range b.durations {
		for i := range b.times {
			r, err := env.measureOutage(ctx, c, outage)
			if err != nil {
				return fmt.Errorf("outage %d of %s: %w", i+1, outage, err)
			}
			harness.PrintProgress("%s, %d of %d: down for %.1f s, then %s", outage, i+1, b.times, r.downtime.Seconds(), r.describeSlowest())
			results = append(results, r)
		}
	}
	return printReport(b.durations, results)
}
