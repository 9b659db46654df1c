// Command scan measures the scanner that writes JobReports, on a real control plane full of
// Jobs, compared with a bare loop that lists the same Jobs in the same pages and discards them.
//
//	go run ./test/bench/scan                               100,000 Jobs in 10 namespaces
//	go run ./test/bench/scan -jobs 10000 -namespaces 10    10,000 Jobs in 10 namespaces
//
// Each subject is a process of its own that makes one scan; the subjects take turns. The first scan
// creates the reports and is not measured: later ones find the same Jobs and write nothing. Then a
// release build of the operator runs until it has scanned several times, to measure its memory.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/yardmaster/yardmaster/test/bench/harness"
	"github.com/yardmaster/yardmaster/test/testenv"
)

func main() {
	roles := map[string]harness.ProcessRole{}
	for _, subject := range subjects {
		roles[subject] = runSubject
	}
	harness.RunMain(runBenchmark, roles)
}

func runBenchmark(ctx context.Context) error {
	jobs := flag.Int("jobs", 100_000, "total number of Jobs")
	namespaces := flag.Int("namespaces", 10, "number of namespaces")
	rounds := flag.Int("rounds", 6, "number of scans of each subject")
	scans := flag.Int("scans", 3, "number of scans of the operator before its memory is measured")
	keep := flag.Bool("keep", false, "keep the cluster and the Jobs")
	flag.Parse()
	env := &environment{jobs: *jobs, namespaces: *namespaces}
	c, err := harness.StartCluster(ctx)
	if err != nil {
		return err
	}
	if !*keep {
		defer c.StopControlPlane(ctx)
	}
	operator, err := testenv.BuildOperator()
	if err != nil {
		return err
	}
	harness.PrintMachine()
	startedAt := time.Now()
	if err := env.createJobs(ctx, c); err != nil {
		return fmt.Errorf("creating Jobs: %w", err)
	}
	harness.PrintProgress("%d Jobs in %d namespaces, created in %s", env.jobs, env.namespaces, time.Since(startedAt).Round(time.Second))

	results, err := env.measureRounds(ctx, c, *rounds)
	if err != nil {
		return err
	}
	running, err := measureOperator(ctx, c, operator, env, *scans)
	if err != nil {
		return fmt.Errorf("operator: %w", err)
	}
	printReport(env, results, running)
	return nil
}

func printReport(env *environment, results map[string][]scanResult, operator scanResult) {
	fmt.Printf("\n%d Jobs in %d namespaces; medians of %d scans\n", env.jobs, env.namespaces, len(results[bareListSubject]))
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tscanner\tbare list\tratio\t")
	row := func(label string, value func(scanResult) float64) {
		median := func(subject string) float64 {
			var values []float64
			for _, r := range results[subject] {
				values = append(values, value(r))
			}
			return harness.Median(values)
		}
		harness.PrintComparison(w, label, median(scanSubject), median(bareListSubject))
	}
	row("a scan, s", func(r scanResult) float64 { return r.duration.Seconds() })
	row("CPU s", func(r scanResult) float64 { return r.cpu.Seconds() })
	row("peak RSS MB", func(r scanResult) float64 { return float64(r.peakRSS) / 1e6 })
	_ = w.Flush() // it writes to standard output
	fmt.Printf("\nthe operator, with all its controllers: peak RSS %.0f MB, %.2f s of CPU per scan, its start included\n",
		float64(operator.peakRSS)/1e6, operator.cpu.Seconds())
}
