package harness

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/internal/clock"
	"github.com/yardmaster/yardmaster/test/testenv"
)

// ProcessRole is a function that a benchmark runs in a process of its own instead of the
// benchmark itself. The first argument is the name of the role.
type ProcessRole func(ctx context.Context, args []string) error

// RunMain runs the role that the first argument names, or else the benchmark, until it is
// finished or interrupted. Every benchmark has the role NATSServerRole.
func RunMain(run func(ctx context.Context) error, roles map[string]ProcessRole) {
	if err := runRole(run, roles); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func runRole(run func(ctx context.Context) error, roles map[string]ProcessRole) (err error) {
	defer func() {
		switch reason := recover().(type) {
		case nil:
		case failure:
			err = reason.error
		default:
			panic(reason)
		}
	}()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if len(os.Args) < 2 {
		return run(ctx)
	}
	if os.Args[1] == NATSServerRole {
		return serveNATS(ctx, os.Args[1:])
	}
	if role := roles[os.Args[1]]; role != nil {
		return role(ctx, os.Args[1:])
	}
	return run(ctx)
}

// failure is the panic with which Check and Must end the program, so that deferred functions clean up.
type failure struct{ error }

// Check ends the benchmark if there is an error, which it prints with the caller's position. Call it only in the goroutine of RunMain.
func Check(err error) { failIf(err) }

// Must returns a value, or is Check if there is an error.
func Must[T any](value T, err error) T {
	failIf(err)
	return value
}

// Must2 is Must for two values.
func Must2[A, B any](a A, b B, err error) (A, B) {
	failIf(err)
	return a, b
}

func failIf(err error) {
	if err != nil {
		_, file, line, _ := runtime.Caller(2)
		panic(failure{fmt.Errorf("%s/%s:%d: %w", filepath.Base(filepath.Dir(file)), filepath.Base(file), line, err)})
	}
}

// PositiveFlag adds a flag for a number that must be at least 1. The default is the number's present value.
func PositiveFlag(number *int, name, usage string) {
	flag.Func(name, fmt.Sprintf("%s (default %d)", usage, *number), func(text string) error {
		n, err := strconv.Atoi(text)
		if err == nil && n < 1 {
			err = errors.New("must be at least 1")
		}
		*number = n
		return err
	})
}

// RunOnCluster is the main function of a benchmark that needs a cluster. It parses the flags, connects to the control plane of -kubeconfig, or if it is empty
// starts one, installs the CustomResourceDefinitions, builds the operator, prints the machine, and then measures.
func RunOnCluster(measure func(ctx context.Context, c *Cluster, operatorBinary string) error, roles map[string]ProcessRole) {
	RunMain(func(ctx context.Context) error {
		keep := flag.Bool("keep", false, "keep the control plane that was started")
		flag.Parse()
		kubeconfig := kubeconfigFlag().Value.String()
		if kubeconfig == "" {
			kubeconfig = startControlPlane(ctx)
			if !*keep {
				defer stopControlPlane(ctx)
			}
		}
		c := Must(ConnectToCluster(kubeconfig))
		Check(c.InstallCRDs(ctx))
		binary := Must(testenv.BuildOperator())
		PrintMachine()
		return measure(ctx, c, binary)
	}, roles)
}

// kubeconfigFlag returns the flag -kubeconfig, which controller-runtime defines. A second definition would panic.
func kubeconfigFlag() *flag.Flag { return flag.Lookup("kubeconfig") }

// Observer is the base of what records events.
type Observer struct {
	mu  sync.Mutex
	err error
}

// Lock waits until no event is recorded, and keeps others from being recorded.
func (o *Observer) Lock() { o.mu.Lock() }

// Unlock lets events be recorded.
func (o *Observer) Unlock() { o.mu.Unlock() }

// WatchError returns the error with which a watch has ended.
func (o *Observer) WatchError() error {
	o.Lock()
	defer o.Unlock()
	return o.err
}

// WatchLists watches the objects that the lists and options select. It calls onEvent for each event with the time of its arrival, and with the lock.
//
// A busy API server closes watches of clients that it cannot serve in time. Such a watch is
// resumed where it ended, so that no event is lost or repeated.
func (o *Observer) WatchLists(
	ctx context.Context, c *Cluster, onEvent func(watch.Event, time.Time), lists []client.ObjectList, options ...client.ListOption,
) {
	record := func(event watch.Event, now time.Time) {
		o.Lock()
		defer o.Unlock()
		onEvent(event, now)
	}
	for _, list := range lists {
		events := Must(c.Watch(ctx, list, options...))
		go func() {
			err := watchList(ctx, c, record, list, options, events)
			o.Lock()
			defer o.Unlock()
			o.err = err
		}()
	}
}

// watchList passes on events until the watch cannot be resumed.
func watchList(
	ctx context.Context, c *Cluster, onEvent func(watch.Event, time.Time),
	list client.ObjectList, options []client.ListOption, events watch.Interface,
) error {
	version := ""
	for {
		for event := range events.ResultChan() {
			if event.Type == watch.Error {
				return fmt.Errorf("watching %T: %w", list, apierrors.FromObject(event.Object))
			}
			if object, ok := event.Object.(metav1.Object); ok {
				version = object.GetResourceVersion()
			}
			onEvent(event, time.Now())
		}
		if version == "" {
			return errors.Join(fmt.Errorf("the watch of %T ended before its first event", list), ctx.Err())
		}
		from := append([]client.ListOption{}, options...)
		var err error
		events, err = c.Watch(ctx, list, append(from, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: version}})...)
		if err != nil {
			return fmt.Errorf("resuming the watch of %T: %w", list, err)
		}
	}
}

// OperatorMetrics returns the metrics of an operator with testenv.MetricsFlags.
func OperatorMetrics(ctx context.Context, operator *testenv.Operator) (map[string]*dto.MetricFamily, error) {
	metrics, err := operator.Metrics(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the operator's metrics: %w", err)
	}
	return ParseMetrics(bytes.NewReader(metrics))
}

// ParseMetrics parses metrics in the text format.
func ParseMetrics(text io.Reader) (map[string]*dto.MetricFamily, error) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	return parser.TextToMetricFamilies(text)
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
	fields, err := processStatus(pid)
	if err != nil {
		return 0, err
	}
	var ticks int64
	for _, field := range fields[11:13] { // utime and stime, in hundredths of a second on every Linux
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

// NewTable returns a table with a header on standard output. Flush prints it.
func NewTable(header string) *tabwriter.Writer {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, header)
	return w
}

// PrintQuantiles prints quantiles of durations in seconds as a row, each in a format such as "%.2f".
func PrintQuantiles(w io.Writer, label, format string, all []time.Duration, quantiles ...float64) {
	fmt.Fprint(w, label, "\t")
	for _, q := range quantiles {
		fmt.Fprintf(w, format+"\t", Quantile(all, q).Seconds())
	}
	fmt.Fprintln(w)
}

// SelfCommand returns the command that runs a role of this program in a process of its own.
func SelfCommand(ctx context.Context, args ...string) *exec.Cmd {
	process := exec.CommandContext(ctx, Must(os.Executable()), args...)
	process.Stderr = os.Stderr
	return process
}

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
	return PollEvery(ctx, 50*time.Millisecond, timeout, done)
}

// PollEvery is PollUntil with this time between two calls.
func PollEvery(ctx context.Context, interval, timeout time.Duration, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("timed out after %s: %w", timeout, ctx.Err())
		case <-time.After(interval):
		}
	}
}

func terminateProcess(process *exec.Cmd) {
	_ = process.Process.Signal(os.Interrupt) // it may have exited
	_ = process.Wait()                       // its exit code does not affect the measurement
}
