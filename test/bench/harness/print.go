package harness

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
)

// PrintMachine says what is measured on.
func PrintMachine() {
	cpu := "unknown CPU"
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(info)) {
			if name, found := strings.CutPrefix(line, "model name"); found {
				cpu = strings.TrimSpace(strings.TrimLeft(name, "\t :"))
				break
			}
		}
	}
	fmt.Printf("%s, %d cores shared by what is measured and all that it needs; %s\n", cpu, runtime.NumCPU(), runtime.Version())
}

// PrintComparison prints a figure of ours beside that of the bare loop, and their ratio. It is for a
// tabwriter.
func PrintComparison(w io.Writer, what string, ours, bare float64) {
	ratio := "-"
	if bare > 0 {
		ratio = fmt.Sprintf("%.2f", ours/bare)
	}
	fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%s\t\n", what, ours, bare, ratio)
}

// CheckTarget prints whether a bar is met, and is an error if it is not.
func CheckTarget(bar string, met bool) error {
	if !met {
		fmt.Println("MISSED:", bar)
		return fmt.Errorf("missed: %s", bar)
	}
	fmt.Println("met:", bar)
	return nil
}
