package main

import (
	"fmt"
	"os"
	"text/tabwriter"
)

// printReport prints the usage until all objects were reconciled, and the usage at rest.
func printReport(env *environment, start, idle resourceUsage) {
	fmt.Printf("\n%d Queues, and a WorkerPool at zero for each\n", env.pools)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tuntil all were reconciled\tat rest\t")
	row := func(what, format string, figure func(u *resourceUsage) float64) {
		fmt.Fprintf(w, "%s\t"+format+"\t"+format+"\t\n", what, figure(&start), figure(&idle))
	}
	row("measured for, s", "%.0f", func(u *resourceUsage) float64 { return u.duration.Seconds() })
	row("operator's CPU, % of a core", "%.1f", func(u *resourceUsage) float64 { return 100 * u.operatorCPU.Seconds() / u.duration.Seconds() })
	row("operator's RSS, MB", "%.0f", func(u *resourceUsage) float64 { return float64(u.rss) / 1e6 })
	row("operator's peak RSS, MB", "%.0f", func(u *resourceUsage) float64 { return float64(u.peakRSS) / 1e6 })
	row("NATS server's CPU, % of a core", "%.1f", func(u *resourceUsage) float64 { return 100 * u.natsCPU.Seconds() / u.duration.Seconds() })
	row("API requests a minute", "%.0f", func(u *resourceUsage) float64 { return u.perMinute(u.requests) })
	row("writes among them", "%.0f", func(u *resourceUsage) float64 { return u.perMinute(u.writes) })
	row("API requests for a pool and its queue", "%.1f", func(u *resourceUsage) float64 { return u.requests / float64(env.pools) })
	row("reconciliations of a pool", "%.1f", func(u *resourceUsage) float64 { return u.poolReconciliations / float64(env.pools) })
	row("reconciliations of a queue", "%.1f", func(u *resourceUsage) float64 { return u.queueReconciliations / float64(env.pools) })
	_ = w.Flush() // it writes to standard output
}
