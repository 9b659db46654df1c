package main

import (
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/yardmaster/yardmaster/test/bench/harness"
)

// least that the median of the ratios may be.
const least = 0.9

// report prints the figures, and says whether the bar is met.
func report(jobs int, rounds []round) error {
	fmt.Printf("\n%d jobs that take no time, %d rounds; medians\n", jobs, len(rounds))
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tworker\tbare consumer\tratio\tsmallest\tgreatest\t")
	row := func(what, format string, figure func(t *turn) float64) []float64 {
		var us, them, ratios []float64
		for i := range rounds {
			us, them = append(us, figure(&rounds[i].ours)), append(them, figure(&rounds[i].bare))
			ratios = append(ratios, us[i]/them[i])
		}
		fmt.Fprintf(w, "%s\t"+format+"\t"+format+"\t%.2f\t%.2f\t%.2f\t\n", what, harness.Median(us), harness.Median(them),
			harness.Median(ratios), harness.Quantile(ratios, 0), harness.Quantile(ratios, 1))
		return ratios
	}
	micros := func(cpu time.Duration) float64 { return float64(cpu) / float64(time.Microsecond) / float64(jobs) }
	ratios := row("jobs a second", "%.0f", func(t *turn) float64 { return float64(jobs) / t.took.Seconds() })
	row("CPU µs a job", "%.1f", func(t *turn) float64 { return micros(t.cpu) })
	row("the server's", "%.1f", func(t *turn) float64 { return micros(t.server) })
	row("both", "%.1f", func(t *turn) float64 { return micros(t.cpu + t.server) })
	_ = w.Flush() // to standard output
	return harness.Check(fmt.Sprintf("the median ratio of jobs a second ≥ %.1f", least), harness.Median(ratios) >= least)
}
