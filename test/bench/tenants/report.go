package main

import (
	"errors"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/yardmaster/yardmaster/test/bench/harness"
)

// maxLatency is the target for the 99th percentile of the second tenant's latency.
const maxLatency = time.Second

// printReport prints the results and returns an error if a target is missed.
func (b *benchmark) printReport(baseline, crowded result) error {
	fmt.Printf("\nanother tenant has %d objects of every kind; %d changes of each kind\n", b.objects, b.trials)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "seconds until the status observes the spec\talone: p50\tp99\tcrowded: p50\tp99\tmax\t")
	var missed error
	for _, kind := range kindOrder {
		before, after := baseline.latencies[kind], crowded.latencies[kind]
		if len(after) == 0 {
			continue
		}
		fmt.Fprintf(w, "%s\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f\t\n", kind, harness.Quantile(before, .5), harness.Quantile(before, .99),
			harness.Quantile(after, .5), harness.Quantile(after, .99), harness.Quantile(after, 1))
	}
	fmt.Fprintf(w, "operator's CPU, cores\t%.2f\t\t%.2f\t\t\t\n", baseline.cores, crowded.cores)
	fmt.Fprintf(w, "operator's RSS, MB\t%.0f\t\t%.0f\t\t\t\n", float64(baseline.rss)/1e6, float64(crowded.rss)/1e6)
	_ = w.Flush() // it writes to standard output
	for _, kind := range kindOrder {
		if after := crowded.latencies[kind]; len(after) > 0 {
			target := fmt.Sprintf("p99 of a %s ≤ %s", kind, maxLatency)
			missed = errors.Join(missed, harness.CheckTarget(target, harness.Quantile(after, .99) <= maxLatency.Seconds()))
		}
	}
	return missed
}
