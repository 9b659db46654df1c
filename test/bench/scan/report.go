package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"text/tabwriter"

	"github.com/yardmaster/yardmaster/test/bench/harness"
)

// printReport prints the medians of the results.
func printReport(env *environment, results map[string][]scanResult, operator scanResult) {
	bare := results[bareListSubject]
	fmt.Printf("\n%d Jobs in %d namespaces; medians of %d scans\n", env.jobs, env.namespaces, len(bare))
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tscanner\tbare list\tratio\t")
	for _, row := range []struct{ scan, subject string }{{"a later scan", laterScanSubject}, {"the first scan", firstScanSubject}} {
		ours := results[row.subject]
		harness.PrintComparison(w, row.scan+", s", medianOf(ours, durationSeconds), medianOf(bare, durationSeconds))
		harness.PrintComparison(w, row.scan+", CPU s", medianOf(ours, cpuSeconds), medianOf(bare, cpuSeconds))
		harness.PrintComparison(w, row.scan+", peak RSS MB", medianOf(ours, peakRSSMegabytes), medianOf(bare, peakRSSMegabytes))
	}
	_ = w.Flush() // it writes to standard output
	fmt.Printf("\nthe operator, with all its controllers: peak RSS %.0f MB, %.2f s of CPU per scan, its start included\n",
		peakRSSMegabytes(operator), cpuSeconds(operator))
}

func durationSeconds(r scanResult) float64  { return r.duration.Seconds() }
func cpuSeconds(r scanResult) float64       { return r.cpu.Seconds() }
func peakRSSMegabytes(r scanResult) float64 { return float64(r.peakRSS) / 1e6 }

// medianOf returns the median of one value of the results.
func medianOf(results []scanResult, value func(scanResult) float64) float64 {
	var values []float64
	for _, r := range results {
		values = append(values, value(r))
	}
	slices.SortFunc(values, cmp.Compare[float64])
	return values[len(values)/2]
}
