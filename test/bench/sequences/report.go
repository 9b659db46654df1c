package main

import (
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/yardmaster/yardmaster/test/bench/harness"
)

// printReport prints the results of one load.
func printReport(l sequenceLoad, ours, bare *loadResult) {
	fmt.Printf("\n%s\n", l)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	defer w.Flush()
	fmt.Fprintln(w, "\toperator\tbare loop\tratio\t")
	harness.PrintComparison(w, "makespan, s", ours.makespan.Seconds(), bare.makespan.Seconds())
	harness.PrintComparison(w, "transition p50, ms", ours.transitionQuantile(.5), bare.transitionQuantile(.5))
	harness.PrintComparison(w, "transition p99, ms", ours.transitionQuantile(.99), bare.transitionQuantile(.99))
	steps := float64(l.jobCount())
	harness.PrintComparison(w, "API writes per step", ours.writes.objects/steps, bare.writes.objects/steps)
	harness.PrintComparison(w, "dry runs per step", ours.writes.dryRuns/steps, bare.writes.dryRuns/steps)
	harness.PrintComparison(w, "CPU s per 1,000 steps", ours.cpu.Seconds()/steps*1000, bare.cpu.Seconds()/steps*1000)
	harness.PrintComparison(w, "peak RSS, MB", float64(ours.peakRSS)/1e6, float64(bare.peakRSS)/1e6)
}

// transitionQuantile returns a quantile of the transitions in milliseconds, or 0 without
// transitions.
func (r *loadResult) transitionQuantile(q float64) float64 {
	if len(r.transitions) == 0 {
		return 0
	}
	at := min(int(q*float64(len(r.transitions))), len(r.transitions)-1)
	return float64(r.transitions[at]) / float64(time.Millisecond)
}
