package testbuilder

import (
	"os"
	"slices"
	"strconv"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// MetricValue returns the value of the operator's gauge or counter with these label values, sorted by
// the names of the labels; 0 if it does not exist.
func MetricValue(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			var values []string
			for _, label := range m.GetLabel() {
				values = append(values, label.GetValue())
			}
			if slices.Equal(values, labels) {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// NumberFromEnv returns the value of an environment variable that scales a test, or the default if it is
// unset. The test fails if the value is not a positive number.
func NumberFromEnv(t *testing.T, variable string, defaultNumber int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return defaultNumber
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s is %q, not a positive number", variable, text)
	}
	return n
}
