package main

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// sweepThresholds tries KEDA with many settings, and prints for each load which of them wait shorter
// than ours, and which take fewer Pods' time. One that does both would be better than ours.
func sweepThresholds(w io.Writer, count uint64) error {
	rows := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	fmt.Fprintln(rows, "| Load\t| Threshold\t| Stabilization, s\t| p95 wait, s\t| p99 wait, s\t| Pod-seconds\t| Against ours\t|")
	fmt.Fprintln(rows, "|---\t|---:\t|---:\t|---:\t|---:\t|---:\t|---\t|")
	better := 0
	for _, l := range messageLoads() {
		our := measureScaler(l, yardmasterScaler(), firstHeldOutSeed, count)
		fmt.Fprintf(rows, "| %s\t| ours\t| \t| %.3f\t| %.1f\t| %.0f\t| \t|\n", l.name, our.p95, our.p99, our.podSeconds)
		for _, threshold := range []float64{6, 7, tunedThreshold, 9, 10, 12, 15, 20, 30} {
			for _, stabilization := range []float64{15, 30, 60} {
				m := measureScaler(l, tunedKEDA(threshold, stabilization), firstHeldOutSeed, count)
				verdict := our.describeDifference(m)
				if verdict == verdictBetterInBoth {
					better++
				}
				fmt.Fprintf(rows, "| %s\t| %g\t| %g\t| %.3f\t| %.1f\t| %.0f\t| %s\t|\n",
					l.name, threshold, stabilization, m.p95, m.p99, m.podSeconds, verdict)
			}
		}
	}
	if err := rows.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%d settings wait no longer than ours and take no more Pods' time.\n", better)
	return nil
}

// verdictBetterInBoth is the verdict on ours where a setting of KEDA's is better in both.
const verdictBetterInBoth = "better in both"

// describeDifference is what the setting is, seen from ours.
func (s meanResults) describeDifference(theirs meanResults) string {
	shorter := theirs.p95 < s.p95 || theirs.p95 <= immediateWait
	cheaper := theirs.podSeconds < s.podSeconds
	switch {
	case shorter && cheaper:
		return verdictBetterInBoth
	case shorter:
		return "more Pods"
	case cheaper:
		return "longer waits"
	default:
		return "worse in both"
	}
}
