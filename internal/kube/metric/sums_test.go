package metric

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/yardmaster/yardmaster/test/require"
)

func TestSumsOfObjectsWithTheSameLabels(t *testing.T) {
	pod := func(name, zone string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, Labels: map[string]string{"zone": zone}}}
	}
	objects := fake.NewClientBuilder().WithObjects(pod("1", "north"), pod("2", "north"), pod("3", "south")).Build()
	pods := NewSum("pods", "Pods by zone.", "zone", "kind", "namespace")
	collector := NewSumCollector(objects, &corev1.PodList{}, func(sums Sums, list *corev1.PodList) {
		for i := range list.Items {
			sums.Add(pods, 10, list.Items[i].Labels["zone"], "pod", list.Items[i].Namespace)
		}
	}, pods)
	const want = `# HELP pods Pods by zone.
# TYPE pods gauge
pods{kind="pod",namespace="a",zone="north"} 20
pods{kind="pod",namespace="a",zone="south"} 10
`
	for range 2 { // each scrape starts at zero
		require.NoError(t, testutil.CollectAndCompare(collector, strings.NewReader(want)))
	}
}
