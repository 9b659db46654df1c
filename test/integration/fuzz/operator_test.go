package fuzz

import (
	"context"
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/test/bench/harness"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testenv"
)

// maxLine is the maximum length of a log line, whatever an object contains.
const maxLine = 16 << 10

// operator is the operator's process.
type operator struct {
	*testenv.Operator
	started time.Time
}

func (env *fuzzTest) startOperator() {
	env.t.Helper()
	binary, err := testenv.BuildOperator()
	require.NoError(env.t, err)
	flags := append(testenv.MetricsFlags(), "--report-namespaces", namespaceName(0)+","+namespaceName(1),
		"--report-interval", "1m", "--queue-sweep", "10s", "--worker-image", "registry.example/worker:1")
	webhooks, err := cluster.InstallWebhooks(env.t.Context())
	require.NoError(env.t, err)
	env.t.Cleanup(func() {
		require.NoError(env.t, webhooks.Remove(context.Background()))
	})
	flags = append(flags, "--webhook=true", "--webhook-port", strconv.Itoa(webhooks.LocalServingPort), "--cert-dir", webhooks.LocalServingCertDir,
		"--operator-namespace", "default")
	process, err := testenv.StartOperator(env.t.Context(), binary, cluster, flags...)
	require.NoError(env.t, err)
	env.operator = &operator{process, time.Now()}
	env.t.Cleanup(process.Stop)
}

// checkRunning checks that the process has neither exited nor recovered from a panic, and that its
// memory stays within the limit of its container.
func (o *operator) checkRunning(t *testing.T) {
	t.Helper()
	select {
	case <-o.Exited():
		t.Fatalf("the operator exited: %s", o.State())
	default:
	}
	for _, metric := range []string{"controller_runtime_reconcile_panics_total", "controller_runtime_webhook_panics_total"} {
		if panics := o.metricSum(t, metric); panics > 0 {
			t.Errorf("%s is %v", metric, panics)
		}
	}
	now, peak, err := harness.ProcessMemory(o.Pid())
	require.NoError(t, err)
	t.Logf("resident memory: %d MiB, at most %d MiB", now>>20, peak>>20)
	require.True(t, peak <= maxMemory, "the operator used %d MiB, want at most %d MiB", peak>>20, maxMemory>>20)
}

func (o *operator) metricSum(t *testing.T, name string) float64 {
	t.Helper()
	families, err := harness.OperatorMetrics(t.Context(), o.Operator)
	require.NoError(t, err)
	sum := 0.0
	for _, metric := range families[name].GetMetric() {
		sum += metric.GetCounter().GetValue()
	}
	return sum
}

// checkQuiet checks that the operator neither logs more than one line about an object nor has more
// than one error for each object while nothing changes.
func (env *fuzzTest) checkQuiet() {
	env.t.Helper()
	const errorsTotal = "controller_runtime_reconcile_errors_total"
	logged, failed := env.operator.countLines(env.t), env.operator.metricSum(env.t, errorsTotal)
	env.sleep(quietTime)
	for key, lines := range env.operator.countLines(env.t) {
		if repeated := len(lines) - len(logged[key]); repeated > 1 {
			env.t.Errorf("%d log lines about %v while nothing changed; the last one is %s", repeated, key, lines[len(lines)-1])
		}
	}
	env.t.Logf("%v errors while nothing changed", env.operator.metricSum(env.t, errorsTotal)-failed)
}

// checkLog checks that the operator logs at most one line about an object in a minute, and another
// one for each change of the object.
func (o *operator) checkLog(t *testing.T, changes map[objectKey]int) {
	t.Helper()
	minutes := int(time.Since(o.started).Minutes()) + 1
	for key, lines := range o.countLines(t) {
		if want := minutes + changes[key]; key.namespace != "" && len(lines) > want {
			t.Errorf("%d log lines about %v in %d minutes, want at most %d; the last one is %s", len(lines), key, minutes, want, lines[len(lines)-1])
		}
	}
}

// countLines returns the lines of the operator's log about each object. Lines about no object, such
// as those at the start of a controller, have no namespace.
func (o *operator) countLines(t *testing.T) map[objectKey][]string {
	t.Helper()
	log, err := os.ReadFile(o.LogFile)
	require.NoError(t, err)
	lines := map[objectKey][]string{}
	for text := range strings.Lines(string(log)) {
		var line struct {
			ControllerKind, Namespace, Name string
		}
		require.True(t, !strings.Contains(text, "panic") && len(text) <= maxLine, "the operator logged %d bytes: %.2000s", len(text), text)
		_ = json.Unmarshal([]byte(text), &line) // a line that is not JSON is about no object
		key := objectKey{line.ControllerKind, line.Namespace, line.Name}
		lines[key] = append(lines[key], text)
	}
	return lines
}
