package main

import (
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/yardmaster/yardmaster/test/bench/harness"
)

// minThroughputRatio is the target for the median of the ratios.
const minThroughputRatio = 0.9

// printReport prints the results and returns an error if the target is missed.
func printReport(jobs int, rounds []roundResult) error {
	fmt.Printf("\n%d jobs without work, %d rounds; medians\n", jobs, len(rounds))
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tworker\tbare consumer\tratio\tsmallest\tgreatest\t")
	row := func(label, format string, value func(t *subjectUsage) float64) []float64 {
		var worker, bare, ratios []float64
		for i := range rounds {
			worker, bare = append(worker, value(&rounds[i].worker)), append(bare, value(&rounds[i].bareConsumer))
			ratios = append(ratios, worker[i]/bare[i])
		}
		fmt.Fprintf(w, "%s\t"+format+"\t"+format+"\t%.2f\t%.2f\t%.2f\t\n", label, harness.Median(worker), harness.Median(bare),
			harness.Median(ratios), harness.Quantile(ratios, 0), harness.Quantile(ratios, 1))
		return ratios
	}
	micros := func(cpu time.Duration) float64 { return float64(cpu) / float64(time.Microsecond) / float64(jobs) }
	ratios := row("jobs per second", "%.0f", func(t *subjectUsage) float64 { return float64(jobs) / t.duration.Seconds() })
	row("CPU µs per job", "%.1f", func(t *subjectUsage) float64 { return micros(t.cpu) })
	row("the server's", "%.1f", func(t *subjectUsage) float64 { return micros(t.serverCPU) })
	row("both", "%.1f", func(t *subjectUsage) float64 { return micros(t.cpu + t.serverCPU) })
	_ = w.Flush() // it writes to standard output
	return harness.CheckTarget(fmt.Sprintf("the median ratio of jobs per second ≥ %.1f", minThroughputRatio), harness.Median(ratios) >= minThroughputRatio)
}
