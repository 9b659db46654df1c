// Command scan measures the scanner that writes JobReports, on a real control plane full of
// Jobs, compared with a bare loop that lists the same Jobs in the same pages and discards them.
//
//	go run ./test/bench/scan                               100,000 Jobs in 10 namespaces
//	go run ./test/bench/scan -jobs 10000 -namespaces 10    10,000 Jobs in 10 namespaces
//
// Each subject is a process of its own that makes one scan; the subjects take turns. The
// scanner is measured twice: for the first scan of its namespaces, which creates a report for
// each of them, and for later scans, which find the same Jobs and write nothing. Then a release
// build of the operator runs until it has scanned several times, to measure its memory.
package main

import (
	"context"
	"flag"
	"fmt"
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
