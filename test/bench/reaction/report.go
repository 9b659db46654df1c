package main

import (
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/yardmaster/yardmaster/test/bench/harness"
)

// maxTimeToReplicas is the target for the 99th percentile of the time to the first replicas.
const maxTimeToReplicas = 2 * time.Second

// printReport prints the results and returns an error if the target is missed.
func printReport(env *environment, results []trialResult) error {
	fmt.Printf("\n%d messages to a WorkerPool at zero, %d trials, with %d more idle pools\n", env.burstMessages, len(results), env.idlePools)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "seconds since the first message\tp50\tp90\tp99\tmax\t")
	row := func(label string, figure func(r *trialResult) time.Duration) []float64 {
		var all []float64
		for i := range results {
			all = append(all, figure(&results[i]).Seconds())
		}
		fmt.Fprintf(w, "%s\t%.3f\t%.3f\t%.3f\t%.3f\t\n", label,
			harness.Quantile(all, .5), harness.Quantile(all, .9), harness.Quantile(all, .99), harness.Quantile(all, 1))
		return all
	}
	replicas := row("the Deployment has replicas", func(r *trialResult) time.Duration { return r.timeToReplicas })
	row("the first Pod is created", func(r *trialResult) time.Duration { return r.timeToPod })
	row("the broker has all messages", func(r *trialResult) time.Duration { return r.publishDuration })
	_ = w.Flush() // it writes to standard output
	return harness.CheckTarget(fmt.Sprintf("p99 until the Deployment has replicas ≤ %s", maxTimeToReplicas), harness.Quantile(replicas, .99) <= maxTimeToReplicas.Seconds())
}
