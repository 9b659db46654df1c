package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"text/tabwriter"

	"github.com/yardmaster/yardmaster/test/bench/harness"
)

// report prints the medians.
func report(y *yard, results map[string][]result, operator result) {
	bare := results[bareList]
	fmt.Printf("\n%d Jobs in %d namespaces; medians of %d scans\n", y.jobs, y.namespaces, len(bare))
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tscanner\tbare list\tratio\t")
	for _, row := range []struct{ scan, turn string }{{"a scan", scanAgain}, {"the first scan", scanFirst}} {
		ours := results[row.turn]
		harness.Row(w, row.scan+", s", median(ours, took), median(bare, took))
		harness.Row(w, row.scan+", CPU s", median(ours, cpu), median(bare, cpu))
		harness.Row(w, row.scan+", peak RSS MB", median(ours, rss), median(bare, rss))
	}
	_ = w.Flush() // to standard output
	fmt.Printf("\nthe operator, with all its controllers: peak RSS %.0f MB, %.2f s of CPU per scan, its start included\n",
		rss(operator), cpu(operator))
}

func took(r result) float64 { return r.took.Seconds() }
func cpu(r result) float64  { return r.cpu.Seconds() }
func rss(r result) float64  { return float64(r.peakRSS) / 1e6 }

// median of a figure.
func median(results []result, figure func(result) float64) float64 {
	var values []float64
	for _, r := range results {
		values = append(values, figure(r))
	}
	slices.SortFunc(values, cmp.Compare[float64])
	return values[len(values)/2]
}
