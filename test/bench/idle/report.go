package main

import (
	"fmt"
	"os"
	"text/tabwriter"
)

// report prints what the first decisions took, and what it costs to wait.
func report(y *yard, start, idle usage) {
	fmt.Printf("\n%d Queues, and a WorkerPool at zero for each\n", y.pools)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tuntil all was decided\tat rest\t")
	row := func(what, format string, figure func(u *usage) float64) {
		fmt.Fprintf(w, "%s\t"+format+"\t"+format+"\t\n", what, figure(&start), figure(&idle))
	}
	row("measured for, s", "%.0f", func(u *usage) float64 { return u.took.Seconds() })
	row("operator's CPU, % of a core", "%.1f", func(u *usage) float64 { return 100 * u.operator.Seconds() / u.took.Seconds() })
	row("operator's RSS, MB", "%.0f", func(u *usage) float64 { return float64(u.rss) / 1e6 })
	row("operator's peak RSS, MB", "%.0f", func(u *usage) float64 { return float64(u.peakRSS) / 1e6 })
	row("NATS server's CPU, % of a core", "%.1f", func(u *usage) float64 { return 100 * u.nats.Seconds() / u.took.Seconds() })
	row("API requests a minute", "%.0f", func(u *usage) float64 { return u.perMinute(u.requests) })
	row("writes among them", "%.0f", func(u *usage) float64 { return u.perMinute(u.writes) })
	row("API requests for a pool and its queue", "%.1f", func(u *usage) float64 { return u.requests / float64(y.pools) })
	row("passes over a pool", "%.1f", func(u *usage) float64 { return u.poolPasses / float64(y.pools) })
	row("passes over a queue", "%.1f", func(u *usage) float64 { return u.queuePasses / float64(y.pools) })
	_ = w.Flush() // to standard output
}
