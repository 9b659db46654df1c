package testbuilder

import (
	"slices"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Metric returns the value of the operator's gauge or counter with these label values, sorted by
// the names of the labels; 0 if it does not exist.
func Metric(t *testing.T, name string, labels ...string) float64 {
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
