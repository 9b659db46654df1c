package main

import (
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/yardmaster/yardmaster/test/bench/harness"
)

// most that the 99th percentile of the time to the first replicas may be.
const most = 2 * time.Second

// report prints the figures, and says whether the bar is met.
func report(y *yard, results []result) error {
	fmt.Printf("\n%d messages to a WorkerPool at zero, %d times, with %d more asleep\n", y.jobs, len(results), y.beside)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "seconds since the first message\tp50\tp90\tp99\tmax\t")
	row := func(what string, figure func(r *result) time.Duration) []float64 {
		var all []float64
		for i := range results {
			all = append(all, figure(&results[i]).Seconds())
		}
		fmt.Fprintf(w, "%s\t%.3f\t%.3f\t%.3f\t%.3f\t\n", what,
			harness.Quantile(all, .5), harness.Quantile(all, .9), harness.Quantile(all, .99), harness.Quantile(all, 1))
		return all
	}
	replicas := row("replicas are asked for", func(r *result) time.Duration { return r.replicas })
	row("a Pod is made", func(r *result) time.Duration { return r.pod })
	row("the broker has all messages", func(r *result) time.Duration { return r.published })
	_ = w.Flush() // to standard output
	return harness.Check(fmt.Sprintf("p99 until replicas are asked for ≤ %s", most), harness.Quantile(replicas, .99) <= most.Seconds())
}
