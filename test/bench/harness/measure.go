package harness

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/yardmaster/yardmaster/internal/clock"
	"github.com/yardmaster/yardmaster/test/testenv"
)

// OperatorMetrics returns the metrics of an operator with testenv.MetricsFlags.
func OperatorMetrics(ctx context.Context, operator *testenv.Operator) (map[string]*dto.MetricFamily, error) {
	metrics, err := operator.Metrics(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the operator's metrics: %w", err)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	return parser.TextToMetricFamilies(bytes.NewReader(metrics))
}

// APIRequests returns the number of an operator's requests to the API server, and of the writes among them.
func APIRequests(metrics map[string]*dto.MetricFamily) (requests, writes float64) {
	for _, metric := range metrics["rest_client_requests_total"].GetMetric() {
		requests += metric.GetCounter().GetValue()
		if MetricLabel(metric, "method") != http.MethodGet {
			writes += metric.GetCounter().GetValue()
		}
	}
	return requests, writes
}

// WaitForRest waits until an operator with testenv.MetricsFlags has written nothing for a time, and fails after the limit.
func WaitForRest(ctx context.Context, operator *testenv.Operator, quiet, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for before := -1.0; ; {
		metrics, err := OperatorMetrics(ctx, operator)
		if err != nil {
			return err
		}
		_, writes := APIRequests(metrics)
		if writes == before {
			return nil
		}
		before = writes
		if err := clock.SleepContext(ctx, quiet); err != nil {
			return err
		}
	}
}

// MetricLabel returns the value of a metric's label, or the empty string if the metric has no such label.
func MetricLabel(metric *dto.Metric, name string) string {
	for _, pair := range metric.GetLabel() {
		if pair.GetName() == name {
			return pair.GetValue()
		}
	}
	return ""
}

// ProcessCPUTime returns the CPU time that a running process has used, from /proc.
func ProcessCPUTime(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The fields follow the command in parentheses: state is field 3, utime and stime are fields 14 and 15, in hundredths of a second on every Linux.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}

// ExitedProcessUsage returns the CPU time and the peak memory in bytes that a process has used.
func ExitedProcessUsage(state *os.ProcessState) (cpu time.Duration, peakRSS int64) {
	if usage, ok := state.SysUsage().(*syscall.Rusage); ok {
		peakRSS = usage.Maxrss << 10
	}
	return state.UserTime() + state.SystemTime(), peakRSS
}

// ProcessMemory returns the current and the peak resident memory of a running process in bytes, from /proc.
func ProcessMemory(pid int) (now, peak int64, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(status)) {
		for field, value := range map[string]*int64{"VmRSS:": &now, "VmHWM:": &peak} {
			if text, found := strings.CutPrefix(line, field); found {
				if _, err := fmt.Sscanf(text, "%d kB", value); err != nil {
					return 0, 0, fmt.Errorf("%s %w", field, err)
				}
				*value <<= 10
			}
		}
	}
	return now, peak, nil
}

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

// PrintComparison prints a value of the product, that of the bare loop, and their ratio, as a row for a tabwriter.
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

// Quantile returns the smallest value that is at least as large as a share q of all values (nearest rank). For few values, the 99th percentile is
// therefore the maximum. Without values it returns zero.
func Quantile[T cmp.Ordered](all []T, q float64) T {
	if len(all) == 0 {
		var zero T
		return zero
	}
	ordered := slices.Sorted(slices.Values(all))
	return ordered[max(int(math.Ceil(q*float64(len(ordered)))), 1)-1]
}

// Median returns the middle value, or the mean of the two middle values. Without values it returns zero.
func Median(all []float64) float64 {
	ordered := slices.Sorted(slices.Values(all))
	if len(ordered) == 0 {
		return 0
	}
	return (ordered[(len(ordered)-1)/2] + ordered[len(ordered)/2]) / 2
}

// RunCommand runs a command. Its output goes to standard error.
func RunCommand(ctx context.Context, name string, args ...string) error {
	process := exec.CommandContext(ctx, name, args...)
	process.Stdout, process.Stderr = os.Stderr, os.Stderr
	if err := process.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return nil
}

// PollUntil calls done until it returns true or an error, for the timeout at most.
func PollUntil(ctx context.Context, timeout time.Duration, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("timed out after %s: %w", timeout, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func terminateProcess(process *exec.Cmd) {
	_ = process.Process.Signal(os.Interrupt) // it may have exited
	_ = process.Wait()                       // its exit code does not affect the measurement
}
