package main

import (
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/yardmaster/yardmaster/test/bench/harness"
)

// minThroughputRatio that the median of the ratios may be.
const minThroughputRatio = 0.9

// printReport prints the figures, and says whether the bar is met.
func printReport(jobs int, rounds []roundResult) error {
	fmt.Printf("\n%d jobs that take no time, %d rounds; medians\n", jobs, len(rounds))
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tworker\tbare consumer\tratio\tsmallest\tgreatest\t")
	row := func(what, format string, figure func(t *subjectUsage) float64) []float64 {
		var us, them, ratios []float64
		for i := range rounds {
			us, them = append(us, figure(&rounds[i].worker)), append(them, figure(&rounds[i].bareConsumer))
			ratios = append(ratios, us[i]/them[i])
		}
		fmt.Fprintf(w, "%s\t"+format+"\t"+format+"\t%.2f\t%.2f\t%.2f\t\n", what, harness.Median(us), harness.Median(them),
			harness.Median(ratios), harness.Quantile(ratios, 0), harness.Quantile(ratios, 1))
		return ratios
	}
	micros := func(cpu time.Duration) float64 { return float64(cpu) / float64(time.Microsecond) / float64(jobs) }
	ratios := row("jobs a second", "%.0f", func(t *subjectUsage) float64 { return float64(jobs) / t.duration.Seconds() })
	row("CPU µs a job", "%.1f", func(t *subjectUsage) float64 { return micros(t.cpu) })
	row("the server's", "%.1f", func(t *subjectUsage) float64 { return micros(t.serverCPU) })
	row("both", "%.1f", func(t *subjectUsage) float64 { return micros(t.cpu + t.serverCPU) })
	_ = w.Flush() // to standard output
	return harness.CheckTarget(fmt.Sprintf("the median ratio of jobs a second ≥ %.1f", minThroughputRatio), harness.Median(ratios) >= minThroughputRatio)
}
