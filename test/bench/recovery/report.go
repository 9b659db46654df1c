package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/yardmaster/yardmaster/test/bench/harness"
)

// maxTimeToReconcile is the target for the time from /readyz to the first reconciliation of a
// new object.
const maxTimeToReconcile = 2 * time.Second

// printReport prints the results and returns an error if any kind missed the target in any
// outage.
func printReport(outages []time.Duration, results []outageResult) error {
	fmt.Printf("\nslowest first reconciliation after /readyz, of %d outages each\n", len(results)/len(outages))
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	kinds := slices.Sorted(maps.Keys(results[0].reconciledAfter))
	fmt.Fprint(w, "seconds\tdowntime\t")
	for _, kind := range kinds {
		fmt.Fprintf(w, "%s\t", kind)
	}
	fmt.Fprintln(w)
	for _, outage := range outages {
		printOutageRow(w, outage, kinds, results)
	}
	_ = w.Flush() // it writes to standard output
	slowest := time.Duration(0)
	for _, r := range results {
		slowest = max(slowest, slices.Max(slices.Collect(maps.Values(r.reconciledAfter))))
	}
	return harness.CheckTarget(fmt.Sprintf("each controller reconciles a new object within %s of /readyz, each time (slowest: %.2f s)", maxTimeToReconcile, slowest.Seconds()), slowest <= maxTimeToReconcile)
}

// printOutageRow prints the slowest time of each kind for outages of one duration.
func printOutageRow(w *tabwriter.Writer, outage time.Duration, kinds []string, results []outageResult) {
	downtime, slowest := time.Duration(0), map[string]time.Duration{}
	for _, r := range results {
		if r.outage != outage {
			continue
		}
		downtime = max(downtime, r.downtime)
		for _, kind := range kinds {
			slowest[kind] = max(slowest[kind], r.reconciledAfter[kind])
		}
	}
	fmt.Fprintf(w, "down for %s\t%.1f\t", outage, downtime.Seconds())
	for _, kind := range kinds {
		fmt.Fprintf(w, "%.2f\t", slowest[kind].Seconds())
	}
	fmt.Fprintln(w)
}
