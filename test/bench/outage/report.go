package main

import (
	"errors"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/yardmaster/yardmaster/test/bench/harness"
)

// Targets for the time until every Queue reports the state of the broker.
const (
	maxTimeUntilUnreachable = 15 * time.Second
	maxTimeUntilReachable   = 10 * time.Second
)

// printReport prints the results and returns an error if a target is missed. SequentialJobs
// need no target: if one fails, the measurement fails.
func printReport(env *environment, results []outageResult) error {
	var unreachable, reachable, sequences []float64
	isConstant := true
	for _, r := range results {
		unreachable, reachable = append(unreachable, toSeconds(r.unreachableAfter...)...), append(reachable, toSeconds(r.reachableAfter...)...)
		sequences = append(sequences, toSeconds(r.sequenceDuration)...)
		isConstant = isConstant && r.minReplicas == poolReplicas && r.maxReplicas == poolReplicas
	}
	fmt.Printf("\n%d Queues, %d outages of the broker\n", env.queues, len(results))
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "seconds\tp50\tp90\tmax\t")
	row := func(label string, all []float64) {
		fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%.2f\t\n", label, harness.Quantile(all, .5), harness.Quantile(all, .9), harness.Quantile(all, 1))
	}
	row("from the outage to BrokerReachable=False", unreachable)
	row("from the restart to BrokerReachable=True", reachable)
	row("a SequentialJob during the outage", sequences)
	_ = w.Flush() // it writes to standard output
	return errors.Join(
		harness.CheckTarget(fmt.Sprintf("every Queue reports the outage within %s", maxTimeUntilUnreachable), harness.Quantile(unreachable, 1) <= maxTimeUntilUnreachable.Seconds()),
		harness.CheckTarget(fmt.Sprintf("every Queue reports the recovery within %s", maxTimeUntilReachable), harness.Quantile(reachable, 1) <= maxTimeUntilReachable.Seconds()),
		harness.CheckTarget(fmt.Sprintf("the pool always has %d desired replicas", poolReplicas), isConstant),
	)
}

func toSeconds(all ...time.Duration) (values []float64) {
	for _, d := range all {
		values = append(values, d.Seconds())
	}
	return values
}
