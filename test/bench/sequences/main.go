// Command sequences measures how the operator runs SequentialJobs, on a real control plane with
// simulated nodes, compared with a bare client loop that creates the same Jobs with one watch
// and stores nothing.
//
//	go run ./test/bench/sequences                    1, 100 and 1,000 sequences of 3 steps
//	go run ./test/bench/sequences -loads 100x10s     100 sequences with steps of 5 to 15 s
//
// A load is a number of sequences and the average duration of their steps. With long steps, the
// control plane has capacity to spare, as in most clusters, and the operator is what is
// measured. With steps of 100 ms it has none, and the benchmark measures how many more requests
// the operator makes.
package main

import (
	"context"
	"flag"
	"fmt"
	"strings"

	"github.com/yardmaster/yardmaster/test/bench/harness"
	"github.com/yardmaster/yardmaster/test/testenv"
)

// bareLoopRole is the role of the process that runs the bare loop.
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
		bare, err := measureLoad(ctx, c, load, bareLoopRunner{})
		if err != nil {
			return fmt.Errorf("bare loop, %s: %w", load, err)
		}
		ours, err := measureLoad(ctx, c, load, operatorRunner{operator})
		if err != nil {
			return fmt.Errorf("operator, %s: %w", load, err)
		}
		printReport(load, ours, bare)
	}
	return nil
}
