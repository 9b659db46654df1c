package main

import (
	"cmp"
	"fmt"
	"io"
	"text/tabwriter"
)

// sweepThresholds simulates KEDA with many settings, and prints for each load which of them have
// shorter waits than Yardmaster, and which use fewer Pod-seconds.
func sweepThresholds(w io.Writer, count uint64) error {
	rows := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	fmt.Fprintln(rows, "| Load\t| Threshold\t| Stabilization, s\t| p95 wait, s\t| p99 wait, s\t| Pod-seconds\t| Compared with Yardmaster\t|")
	fmt.Fprintln(rows, "|---\t|---:\t|---:\t|---:\t|---:\t|---:\t|---\t|")
	better := 0
	for _, l := range messageLoads() {
		our := measureScaler(l, yardmasterScaler(), firstHeldOutSeed, count)
		fmt.Fprintf(rows, "| %s\t| Yardmaster\t| \t| %.3f\t| %.1f\t| %.0f\t| \t|\n", l.name, our.p95, our.p99, our.podSeconds)
		for _, threshold := range []float64{6, 7, tunedThreshold, 9, 10, 12, 15, 20, 30} {
			for _, stabilization := range []float64{15, 30, 60} {
				m := measureScaler(l, tunedKEDA(threshold, stabilization), firstHeldOutSeed, count)
				shorter, cheaper := m.p95 < our.p95 || m.p95 <= immediateWait, m.podSeconds < our.podSeconds
				verdict := map[[2]bool]string{{true, true}: "better in both", {true, false}: "more Pods", {false, true}: "longer waits"}[[2]bool{shorter, cheaper}]
				if shorter && cheaper {
					better++
				}
				fmt.Fprintf(rows, "| %s\t| %g\t| %g\t| %.3f\t| %.1f\t| %.0f\t| %s\t|\n",
					l.name, threshold, stabilization, m.p95, m.p99, m.podSeconds, cmp.Or(verdict, "worse in both"))
			}
		}
	}
	if err := rows.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%d settings have shorter waits and use fewer Pod-seconds than Yardmaster.\n", better)
	return nil
}
