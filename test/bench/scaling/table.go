package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"text/tabwriter"

	"golang.org/x/sync/errgroup"
)

const (
	// maxOperationsRatio bounds the ratio of scale operations of Yardmaster and KEDA.
	maxOperationsRatio = 1.5
	// immediateWait is the wait, in seconds, up to which a delivery counts as immediate.
	immediateWait = 0.01
)

// meanResults contains the means of the results of all seeds.
type meanResults struct {
	p95, p99, podSeconds, scaleOperations, interruptedWorkers, redeliveredMessages float64
}

// printTable prints a table, and returns an error for each missed target. Yardmaster must have shorter waits, use no more Pod-seconds and not
// many more scale operations, and interrupt no worker.
func printTable(w io.Writer, title string, scalers []scalerModel, first, count uint64) error {
	fmt.Fprintf(w, "%s. Means of an hour.\n\n", title)
	rows := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	fmt.Fprintln(rows, "| Load\t| Scaler\t| p95 wait, s\t| p99 wait, s\t| Pod-seconds\t| Scale operations\t| Interrupted workers\t| Redelivered\t|")
	fmt.Fprintln(rows, "|---\t|---\t|---:\t|---:\t|---:\t|---:\t|---:\t|---:\t|")
	var missed []error
	better := 0
	for _, l := range messageLoads() {
		var our meanResults
		for i, s := range scalers {
			m := measureScaler(l, s, first, count)
			fmt.Fprintf(rows, "| %s\t| %s\t| %.2f\t| %.1f\t| %.0f\t| %.1f\t| %.1f\t| %.1f\t|\n",
				l.name, s.name, m.p95, m.p99, m.podSeconds, m.scaleOperations, m.interruptedWorkers, m.redeliveredMessages)
			if i == 0 {
				our = m
				continue
			}
			if (m.p95 < our.p95 || m.p95 <= immediateWait) && m.podSeconds < our.podSeconds {
				better++
			}
			if err := our.checkTargets(m); err != nil {
				missed = append(missed, fmt.Errorf("%s, compared with %s: %w", l.name, s.name, err))
			}
		}
	}
	err := rows.Flush()
	fmt.Fprintf(w, "\n%d settings of KEDA have shorter waits and use fewer Pod-seconds than Yardmaster.\n", better)
	return errors.Join(errors.Join(missed...), err)
}

// checkTargets returns the targets that Yardmaster, the receiver, misses compared with KEDA.
func (s meanResults) checkTargets(theirs meanResults) error {
	var errs []error
	if s.p95 >= theirs.p95 && s.p95 > immediateWait {
		errs = append(errs, fmt.Errorf("the p95 wait is %.3f s, with KEDA %.3f s", s.p95, theirs.p95))
	}
	if s.podSeconds > theirs.podSeconds {
		errs = append(errs, fmt.Errorf("it uses %.0f Pod-seconds, KEDA %.0f", s.podSeconds, theirs.podSeconds))
	}
	if s.scaleOperations > maxOperationsRatio*theirs.scaleOperations {
		errs = append(errs, fmt.Errorf("it needs %.1f scale operations, KEDA %.1f", s.scaleOperations, theirs.scaleOperations))
	}
	if s.interruptedWorkers > 0 {
		errs = append(errs, fmt.Errorf("%.1f workers were stopped with messages in flight", s.interruptedWorkers))
	}
	return errors.Join(errs...)
}

// measureScaler simulates a load with each of the seeds.
func measureScaler(l messageLoad, s scalerModel, first, count uint64) meanResults {
	results := make([]simulationResult, count)
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range count {
		group.Go(func() error {
			results[i] = simulateSeed(l, s, first+i)
			return nil
		})
	}
	_ = group.Wait() // the functions return no errors
	mean, n := meanResults{}, float64(count)
	for _, r := range results {
		mean.p95 += r.waitQuantile(0.95) / n
		mean.p99 += r.waitQuantile(0.99) / n
		mean.podSeconds += r.podSeconds / n
		mean.scaleOperations += float64(r.scaleOperations) / n
		mean.interruptedWorkers += float64(r.interruptedWorkers) / n
		mean.redeliveredMessages += float64(r.redeliveredMessages) / n
	}
	return mean
}

// simulateSeed simulates the load of one seed.
func simulateSeed(l messageLoad, s scalerModel, seed uint64) simulationResult {
	messages := l.drawMessages(rand.New(rand.NewPCG(seed, 1))) //nolint:gosec // a simulation must be reproducible
	return s.run(newWorkerSimulation(messages, seed), l.maxWorkers)
}

// waitQuantile returns a quantile of the waits, which are sorted.
func (r *simulationResult) waitQuantile(q float64) float64 {
	if len(r.waits) == 0 {
		return 0
	}
	return r.waits[min(int(q*float64(len(r.waits))), len(r.waits)-1)]
}
