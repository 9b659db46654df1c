package main

import (
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/yardmaster/yardmaster/test/bench/harness"
)

// report prints one load's figures.
func report(l load, ours, bare *result) {
	fmt.Printf("\n%s\n", l)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	defer w.Flush()
	fmt.Fprintln(w, "\toperator\tbare loop\tratio\t")
	harness.Row(w, "makespan, s", ours.makespan.Seconds(), bare.makespan.Seconds())
	harness.Row(w, "transition p50, ms", ours.quantile(.5), bare.quantile(.5))
	harness.Row(w, "transition p99, ms", ours.quantile(.99), bare.quantile(.99))
	steps := float64(l.jobs())
	harness.Row(w, "API writes per step", ours.writes.objects/steps, bare.writes.objects/steps)
	harness.Row(w, "dry runs per step", ours.writes.dryRuns/steps, bare.writes.dryRuns/steps)
	harness.Row(w, "CPU s per 1,000 steps", ours.cpu.Seconds()/steps*1000, bare.cpu.Seconds()/steps*1000)
	harness.Row(w, "peak RSS, MB", float64(ours.peakRSS)/1e6, float64(bare.peakRSS)/1e6)
}

// quantile of the transitions in milliseconds, 0 without any.
func (r *result) quantile(q float64) float64 {
	if len(r.transitions) == 0 {
		return 0
	}
	at := min(int(q*float64(len(r.transitions))), len(r.transitions)-1)
	return float64(r.transitions[at]) / float64(time.Millisecond)
}
