package testenv

import (
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// MetricValue returns the value of the operator's gauge or counter with these label values, sorted by
// the names of the labels; 0 if it does not exist.
func MetricValue(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	return metricValues(t, name)[strings.Join(labels, ",")]
}

// MetricLabels returns the label values of all existing gauges or counters of the operator with this
// name, joined by commas and sorted by the names of the labels.
func MetricLabels(t *testing.T, name string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for labels := range metricValues(t, name) {
		found[labels] = true
	}
	return found
}

// metricValues returns the values of the operator's gauges or counters with this name by their label values.
func metricValues(t *testing.T, name string) map[string]float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			var values []string
			for _, label := range m.GetLabel() {
				values = append(values, label.GetValue())
			}
			found[strings.Join(values, ",")] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return found
}
