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

// most that it may take from /readyz to the first reconcile of an object that is new.
const most = 2 * time.Second

// report prints the figures, and says whether the bar is met: each time, for each kind.
func report(outages []time.Duration, results []result) error {
	fmt.Printf("\nthe slowest first reconcile after /readyz, of %d outages each\n", len(results)/len(outages))
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	kinds := slices.Sorted(maps.Keys(results[0].took))
	fmt.Fprint(w, "seconds\taway\t")
	for _, kind := range kinds {
		fmt.Fprintf(w, "%s\t", kind)
	}
	fmt.Fprintln(w)
	for _, outage := range outages {
		row(w, outage, kinds, results)
	}
	_ = w.Flush() // to standard output
	slowest := time.Duration(0)
	for _, r := range results {
		slowest = max(slowest, slices.Max(slices.Collect(maps.Values(r.took))))
	}
	return harness.Check(fmt.Sprintf("each controller reconciles a new object within %s of /readyz, each time (slowest: %.2f s)", most, slowest.Seconds()), slowest <= most)
}

// row is the slowest of each kind after outages of a length.
func row(w *tabwriter.Writer, outage time.Duration, kinds []string, results []result) {
	away, slowest := time.Duration(0), map[string]time.Duration{}
	for _, r := range results {
		if r.outage != outage {
			continue
		}
		away = max(away, r.away)
		for _, kind := range kinds {
			slowest[kind] = max(slowest[kind], r.took[kind])
		}
	}
	fmt.Fprintf(w, "down for %s\t%.1f\t", outage, away.Seconds())
	for _, kind := range kinds {
		fmt.Fprintf(w, "%.2f\t", slowest[kind].Seconds())
	}
	fmt.Fprintln(w)
}
