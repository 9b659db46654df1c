// Command sequences measures how the operator runs SequentialJobs, on a real control plane with
// simulated nodes, compared with a bare client loop that creates the same Jobs with one watch
// and stores nothing.
//
//	go run ./test/bench/sequences                    1, 100 and 1,000 sequences of 3 steps
//	go run ./test/bench/sequences -loads 100x10s     100 sequences with steps of 5 to 15 s
//
// A load is a number of sequences and the average duration of their steps. With long steps, the control plane has capacity to spare, as in
// most clusters, and the operator is what is measured. With steps of 100 ms it has none, and the benchmark measures how many more requests
// the operator makes.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/yardmaster/yardmaster/test/bench/harness"
	"github.com/yardmaster/yardmaster/test/testenv"
)

const bareLoopRole = "bare-loop"

func main() { harness.RunMain(runBenchmark, map[string]harness.ProcessRole{bareLoopRole: runBareLoop}) }

func runBenchmark(ctx context.Context) error {
	loads := flag.String("loads", "1x1s,100x10s,1000x30s,100x100ms,1000x100ms", "comma-separated loads, SEQUENCESxSTEPDURATION, one measurement each")
	steps := flag.Int("steps", 3, "number of steps of a sequence")
	keep := flag.Bool("keep", false, "keep the cluster")
	flag.Parse()

	c, err := harness.StartCluster(ctx)
	if err != nil {
		return err
	}
	if !*keep {
		defer c.StopControlPlane(ctx)
	}
	operator, err := testenv.BuildOperator()
	if err != nil {
		return err
	}
	harness.PrintMachine()
	for text := range strings.SplitSeq(*loads, ",") {
		load, err := parseLoad(text, *steps)
		if err != nil {
			return fmt.Errorf("-loads: %w", err)
		}
		bare, err := measureLoad(ctx, c, load, "")
		if err != nil {
			return fmt.Errorf("bare loop, %s: %w", load, err)
		}
		ours, err := measureLoad(ctx, c, load, operator)
		if err != nil {
			return fmt.Errorf("operator, %s: %w", load, err)
		}
		printReport(load, ours, bare)
	}
	return nil
}

func printReport(l sequenceLoad, ours, bare *loadResult) {
	fmt.Printf("\n%s\n", l)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	defer w.Flush()
	fmt.Fprintln(w, "\toperator\tbare loop\tratio\t")
	row := func(label string, value func(r *loadResult) float64) {
		harness.PrintComparison(w, label, value(ours), value(bare))
	}
	steps := float64(l.jobCount())
	milliseconds := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	row("makespan, s", func(r *loadResult) float64 { return r.makespan.Seconds() })
	row("transition p50, ms", func(r *loadResult) float64 { return milliseconds(harness.Quantile(r.transitions, .5)) })
	row("transition p99, ms", func(r *loadResult) float64 { return milliseconds(harness.Quantile(r.transitions, .99)) })
	row(createdJobs+" per step", func(r *loadResult) float64 { return r.writes[createdJobs] / steps })
	row("further requests per step", func(r *loadResult) (sum float64) {
		for _, kind := range furtherWrites {
			sum += r.writes[kind] / steps
		}
		return sum
	})
	for _, kind := range furtherWrites {
		row("  "+kind, func(r *loadResult) float64 { return r.writes[kind] / steps })
	}
	row("CPU s per 1,000 steps", func(r *loadResult) float64 { return r.cpu.Seconds() / steps * 1000 })
	row("peak RSS, MB", func(r *loadResult) float64 { return float64(r.peakRSS) / 1e6 })
}
