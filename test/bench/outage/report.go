package main

import (
	"errors"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/yardmaster/yardmaster/test/bench/harness"
)

// How long it may take at most until a Queue tells of the broker.
const (
	maxTimeUntilUnreachable = 15 * time.Second
	maxTimeUntilReachable   = 10 * time.Second
)

// printReport prints the figures, and says whether the bars are met. That SequentialJobs ran
// through is no bar: if one had not, there would be no report.
func printReport(env *environment, results []outageResult) error {
	var lost, back, sequences []float64
	held := true
	for _, r := range results {
		lost, back = append(lost, toSeconds(r.unreachableAfter...)...), append(back, toSeconds(r.reachableAfter...)...)
		sequences = append(sequences, toSeconds(r.sequenceDuration)...)
		held = held && r.minReplicas == poolReplicas && r.maxReplicas == poolReplicas
	}
	fmt.Printf("\n%d Queues, the broker gone %d times\n", env.queues, len(results))
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "seconds\tp50\tp90\tmax\t")
	row := func(what string, all []float64) {
		fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%.2f\t\n", what, harness.Quantile(all, .5), harness.Quantile(all, .9), harness.Quantile(all, 1))
	}
	row("from the loss to BrokerReachable=False", lost)
	row("from the return to BrokerReachable=True", back)
	row("a SequentialJob meanwhile", sequences)
	_ = w.Flush() // to standard output
	return errors.Join(
		harness.CheckTarget(fmt.Sprintf("every Queue tells of the loss in %s", maxTimeUntilUnreachable), harness.Quantile(lost, 1) <= maxTimeUntilUnreachable.Seconds()),
		harness.CheckTarget(fmt.Sprintf("every Queue tells of the return in %s", maxTimeUntilReachable), harness.Quantile(back, 1) <= maxTimeUntilReachable.Seconds()),
		harness.CheckTarget(fmt.Sprintf("the pool was asked for %d replicas all the time", poolReplicas), held),
	)
}

func toSeconds(all ...time.Duration) (values []float64) {
	for _, d := range all {
		values = append(values, d.Seconds())
	}
	return values
}
