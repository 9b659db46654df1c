package main

import (
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/yardmaster/yardmaster/test/bench/harness"
)

// maxTimeToReplicas that the 99th percentile of the time to the first replicas may be.
const maxTimeToReplicas = 2 * time.Second

// printReport prints the figures, and says whether the bar is met.
func printReport(env *environment, results []trialResult) error {
	fmt.Printf("\n%d messages to a WorkerPool at zero, %d times, with %d more asleep\n", env.burstMessages, len(results), env.idlePools)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "seconds since the first message\tp50\tp90\tp99\tmax\t")
	row := func(what string, figure func(r *trialResult) time.Duration) []float64 {
		var all []float64
		for i := range results {
			all = append(all, figure(&results[i]).Seconds())
		}
		fmt.Fprintf(w, "%s\t%.3f\t%.3f\t%.3f\t%.3f\t\n", what,
			harness.Quantile(all, .5), harness.Quantile(all, .9), harness.Quantile(all, .99), harness.Quantile(all, 1))
		return all
	}
	replicas := row("replicas are asked for", func(r *trialResult) time.Duration { return r.timeToReplicas })
	row("a Pod is made", func(r *trialResult) time.Duration { return r.timeToPod })
	row("the broker has all messages", func(r *trialResult) time.Duration { return r.publishDuration })
	_ = w.Flush() // to standard output
	return harness.CheckTarget(fmt.Sprintf("p99 until replicas are asked for ≤ %s", maxTimeToReplicas), harness.Quantile(replicas, .99) <= maxTimeToReplicas.Seconds())
}
