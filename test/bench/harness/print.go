package harness

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
)

// PrintMachine prints the machine on which the benchmark runs.
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
	fmt.Printf("%s, %d cores, shared by what is measured and its environment; %s\n", cpu, runtime.NumCPU(), runtime.Version())
}

// PrintProgress prints a line on standard error.
func PrintProgress(format string, args ...any) { fmt.Fprintf(os.Stderr, "  "+format+"\n", args...) }

// PrintComparison prints a value of the product, that of the bare loop, and their ratio, as a
// row for a tabwriter.
func PrintComparison(w io.Writer, label string, ours, bare float64) {
	ratio := "-"
	if bare > 0 {
		ratio = fmt.Sprintf("%.2f", ours/bare)
	}
	fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%s\t\n", label, ours, bare, ratio)
}

// CheckTarget prints whether a target is met, and returns an error if it is not.
func CheckTarget(target string, met bool) error {
	if !met {
		fmt.Println("MISSED:", target)
		return fmt.Errorf("missed: %s", target)
	}
	fmt.Println("met:", target)
	return nil
}
