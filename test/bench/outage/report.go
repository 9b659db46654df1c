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
	mostUntilLost = 15 * time.Second
	mostUntilBack = 10 * time.Second
)

// report prints the figures, and says whether the bars are met. That SequentialJobs ran
// through is no bar: if one had not, there would be no report.
func report(y *yard, results []result) error {
	var lost, back, sequences []float64
	held := true
	for _, r := range results {
		lost, back = append(lost, seconds(r.lost...)...), append(back, seconds(r.back...)...)
		sequences = append(sequences, seconds(r.sequence)...)
		held = held && r.fewest == replicas && r.most == replicas
	}
	fmt.Printf("\n%d Queues, the broker gone %d times\n", y.queues, len(results))
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
		harness.Check(fmt.Sprintf("every Queue tells of the loss in %s", mostUntilLost), harness.Quantile(lost, 1) <= mostUntilLost.Seconds()),
		harness.Check(fmt.Sprintf("every Queue tells of the return in %s", mostUntilBack), harness.Quantile(back, 1) <= mostUntilBack.Seconds()),
		harness.Check(fmt.Sprintf("the pool was asked for %d replicas all the time", replicas), held),
	)
}

func seconds(all ...time.Duration) (values []float64) {
	for _, d := range all {
		values = append(values, d.Seconds())
	}
	return values
}
