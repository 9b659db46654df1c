package main

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
)

const (
	// maxOperationsRatio is the maximum ratio of Yardmaster's scale operations to KEDA's.
	maxOperationsRatio = 1.5
	// immediateWait is the waiting time of an immediate delivery, the shortest in the model.
	immediateWait = 0.01
)

// printTable prints the comparison, and returns an error for each target that is missed.
func printTable(w io.Writer, title string, first, count uint64) error {
	fmt.Fprintf(w, "%s. Means of one hour.\n\n", title)
	rows := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	fmt.Fprintln(rows, "| Load\t| Scaler\t| p95 wait, s\t| p99 wait, s\t| Pod-seconds\t| Scale operations\t| Interrupted workers\t| Redelivered\t|")
	fmt.Fprintln(rows, "|---\t|---\t|---:\t|---:\t|---:\t|---:\t|---:\t|---:\t|")
	var missed []error
	for _, l := range messageLoads() {
		var our meanResults
		for i, s := range comparedScalers() {
			m := measureScaler(l, s, first, count)
			fmt.Fprintf(rows, "| %s\t| %s\t| %.2f\t| %.1f\t| %.0f\t| %.1f\t| %.1f\t| %.1f\t|\n",
				l.name, s.name, m.p95, m.p99, m.podSeconds, m.scaleOperations, m.interruptedWorkers, m.redeliveredMessages)
			if i == 0 {
				our = m
				continue
			}
			if err := our.checkTargets(m); err != nil {
				missed = append(missed, fmt.Errorf("%s, against %s: %w", l.name, s.name, err))
			}
		}
	}
	return errors.Join(errors.Join(missed...), rows.Flush())
}

// checkTargets returns an error for each target that is missed in comparison with another scaler.
func (s meanResults) checkTargets(theirs meanResults) error {
	var errs []error
	if s.p95 >= theirs.p95 && s.p95 > immediateWait {
		errs = append(errs, fmt.Errorf("the p95 wait is %.3f s, the other scaler's is %.3f s", s.p95, theirs.p95))
	}
	if s.podSeconds > theirs.podSeconds {
		errs = append(errs, fmt.Errorf("it uses %.0f pod-seconds, the other scaler %.0f", s.podSeconds, theirs.podSeconds))
	}
	if s.scaleOperations > maxOperationsRatio*theirs.scaleOperations {
		errs = append(errs, fmt.Errorf("it makes %.1f scale operations, the other scaler %.1f", s.scaleOperations, theirs.scaleOperations))
	}
	if s.interruptedWorkers > 0 {
		errs = append(errs, fmt.Errorf("%.1f workers were interrupted", s.interruptedWorkers))
	}
	return errors.Join(errs...)
}
