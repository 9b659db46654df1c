// Command scan measures the scanner behind JobReports on a real control plane full of
// Jobs, next to a bare loop that lists the same Jobs in the same pages and forgets them.
//
//	go run ./test/bench/scan                               100,000 Jobs in 10 namespaces
//	go run ./test/bench/scan -jobs 10000 -namespaces 10    a tenth of that
//
// Each is a process of its own that makes one scan; they take turns. A scan is measured
// twice: as the first of its namespaces, which writes a report for each, and as one of
// those that follow, which find the same again and write nothing. The operator is then run
// as it is built, until it has scanned several times, for its memory.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/yardmaster/yardmaster/test/bench/harness"
)

func main() {
	roles := map[string]harness.ProcessRole{}
	for _, turn := range subjects {
		roles[turn] = runSubject
	}
	harness.RunMain(runBenchmark, roles)
}

func runBenchmark(ctx context.Context) error {
	jobs := flag.Int("jobs", 100_000, "Jobs in all")
	namespaces := flag.Int("namespaces", 10, "namespaces they are in")
	rounds := flag.Int("rounds", 6, "how often each is measured")
	scans := flag.Int("scans", 3, "how often the operator scans before its memory is read")
	keep := flag.Bool("keep", false, "leave the cluster and the Jobs there")
	flag.Parse()
	return measureScans(ctx, &environment{jobs: *jobs, namespaces: *namespaces}, *rounds, *scans, *keep)
}

func measureScans(ctx context.Context, env *environment, rounds, scans int, keep bool) error {
	c, err := harness.StartCluster(ctx)
	if err != nil {
		return err
	}
	if !keep {
		defer c.StopControlPlane(ctx)
	}
	operator, err := harness.BuildOperator(ctx)
	if err != nil {
		return err
	}
	harness.PrintMachine()
	begun := time.Now()
	if err := env.createJobs(ctx, c); err != nil {
		return fmt.Errorf("making Jobs: %w", err)
	}
	fmt.Fprintf(os.Stderr, "  %d Jobs in %d namespaces, made in %s\n", env.jobs, env.namespaces, time.Since(begun).Round(time.Second))

	results, err := env.measureRounds(ctx, c, rounds)
	if err != nil {
		return err
	}
	running, err := measureOperator(ctx, c, operator, env, scans)
	if err != nil {
		return fmt.Errorf("operator: %w", err)
	}
	printReport(env, results, running)
	return nil
}
