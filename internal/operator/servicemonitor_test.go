package operator

import (
	"os"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/test/require"
)

// Alerts use the namespace label of metrics such as yardmaster_jobreport_jobs. Without honorLabels,
// Prometheus replaces it by the operator's namespace.
func TestServiceMonitorKeepsTheNamespaceLabelOfMetrics(t *testing.T) {
	content, err := os.ReadFile("../../config/components/prometheus/service_monitor.yaml")
	require.NoError(t, err)
	monitor := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal(content, &monitor.Object))
	endpoints, _, err := unstructured.NestedSlice(monitor.Object, "spec", "endpoints")
	require.True(t, err == nil && len(endpoints) != 0, "endpoints %v: %v", endpoints, err)
	for _, one := range endpoints {
		endpoint, _ := one.(map[string]any)
		if honor, _, _ := unstructured.NestedBool(endpoint, "honorLabels"); !honor {
			t.Errorf("endpoint %v does not honour the labels", endpoint["port"])
		}
	}
}
