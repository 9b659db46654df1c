package main

import (
	"errors"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/yardmaster/yardmaster/test/bench/harness"
)

const (
	// maxTimeToJob is the target for the 99th percentile of the time from a session to its Job.
	maxTimeToJob = 100 * time.Millisecond
	// maxTimeToDelete is the target for the 99th percentile of the time until all objects of a
	// deleted session are deleted.
	maxTimeToDelete = 5 * time.Second
	// maxOperatorRSS is the target for the operator's peak memory, in bytes.
	maxOperatorRSS = 150e6
)

func printReport(env *environment, r sessionResult) error {
	fmt.Printf("\n%d sessions run\n", env.sessions)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "seconds\tp50\tp90\tp99\tmax\t")
	row := func(label string, all []time.Duration) time.Duration {
		fmt.Fprintf(w, "%s\t%.3f\t%.3f\t%.3f\t%.3f\t\n", label, harness.Quantile(all, .5).Seconds(), harness.Quantile(all, .9).Seconds(),
			harness.Quantile(all, .99).Seconds(), harness.Quantile(all, 1).Seconds())
		return harness.Quantile(all, .99)
	}
	single := row("from a session to its Job, one at a time", r.single)
	atOnce := row(fmt.Sprintf("the same, %d at once", env.burst), r.atOnce)
	bare := row("the same objects created by a bare client", r.bare)
	deleted := row(fmt.Sprintf("until all objects are deleted, %d sessions at once", env.burst), r.deleted)
	alone := row("the same without the operator", r.deletedAlone)
	_ = w.Flush() // it writes to standard output
	fmt.Printf("%.1f times the bare client's time\n", atOnce.Seconds()/bare.Seconds())
	fmt.Printf("%.1f API requests per session until it runs; RSS %.0f MB, peak %.0f MB\n", r.requests, float64(r.rss)/1e6, float64(r.peakRSS)/1e6)
	return errors.Join(
		harness.CheckTarget(fmt.Sprintf("p99 from a session to its Job, one at a time ≤ %s", maxTimeToJob), single <= maxTimeToJob),
		harness.CheckTarget(fmt.Sprintf("p99 from a session to its Job, %d at once ≤ %s", env.burst, maxTimeToJob), atOnce <= maxTimeToJob),
		harness.CheckTarget(fmt.Sprintf("p99 until all objects are deleted, with the operator ≤ %s", maxTimeToDelete), deleted <= maxTimeToDelete),
		harness.CheckTarget(fmt.Sprintf("p99 until all objects are deleted, without the operator ≤ %s", maxTimeToDelete), alone <= maxTimeToDelete),
		harness.CheckTarget("the operator's RSS ≤ 150 MB", r.peakRSS <= maxOperatorRSS),
	)
}
