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
	harness.PrintComparison(w, "created Jobs per step", ours.writes.jobs/steps, bare.writes.jobs/steps)
	harness.PrintComparison(w, "further requests per step", ours.writes.further()/steps, bare.writes.further()/steps)
	harness.PrintComparison(w, "  updates", ours.writes.updates/steps, bare.writes.updates/steps)
	harness.PrintComparison(w, "  events", ours.writes.events/steps, bare.writes.events/steps)
	harness.PrintComparison(w, "  dry runs of Jobs", ours.writes.jobTries/steps, bare.writes.jobTries/steps)
	harness.PrintComparison(w, "  dry runs of Pods", ours.writes.podTries/steps, bare.writes.podTries/steps)
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
