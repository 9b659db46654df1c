package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"
)

func printMachine() {
	cpu := "unknown CPU"
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(info)) {
			if name, found := strings.CutPrefix(line, "model name"); found {
				cpu = strings.TrimSpace(strings.TrimLeft(name, "\t :"))
				break
			}
		}
	}
	fmt.Printf("%s, %d cores shared by control plane, simulated nodes and what is measured; %s\n", cpu, runtime.NumCPU(), runtime.Version())
}

// report prints one load's figures.
func report(l load, ours, bare *result) {
	fmt.Printf("\n%s\n", l)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	defer w.Flush()
	fmt.Fprintln(w, "\toperator\tbare loop\tratio\t")
	row(w, "makespan, s", ours.makespan.Seconds(), bare.makespan.Seconds())
	row(w, "transition p50, ms", ours.quantile(.5), bare.quantile(.5))
	row(w, "transition p99, ms", ours.quantile(.99), bare.quantile(.99))
	steps := float64(l.jobs())
	row(w, "API writes per step", ours.writes.objects/steps, bare.writes.objects/steps)
	row(w, "dry runs per step", ours.writes.dryRuns/steps, bare.writes.dryRuns/steps)
	row(w, "CPU s per 1,000 steps", ours.cpu.Seconds()/steps*1000, bare.cpu.Seconds()/steps*1000)
	row(w, "peak RSS, MB", float64(ours.peakRSS)/1e6, float64(bare.peakRSS)/1e6)
}

func row(w *tabwriter.Writer, what string, ours, bare float64) {
	ratio := "-"
	if bare > 0 {
		ratio = fmt.Sprintf("%.2f", ours/bare)
	}
	fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%s\t\n", what, ours, bare, ratio)
}

// quantile of the transitions in milliseconds, 0 without any.
func (r *result) quantile(q float64) float64 {
	if len(r.transitions) == 0 {
		return 0
	}
	at := min(int(q*float64(len(r.transitions))), len(r.transitions)-1)
	return float64(r.transitions[at]) / float64(time.Millisecond)
}
