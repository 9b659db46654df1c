package workerpool

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

func TestTheStatusesOfANamespaceAreSummedUp(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	pool := func(name string, status v1alpha1.WorkerPoolStatus) *v1alpha1.WorkerPool {
		return &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name}, Status: status}
	}
	reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		pool("mail", v1alpha1.WorkerPoolStatus{
			Desired: 8, Ready: 6, Draining: 1, Busy: new(int32(5)), Backlog: new(int64(1200)), InFlight: new(int64(50)),
			SLO:          &v1alpha1.ObjectiveStatus{Met: metav1.ConditionFalse},
			LastDecision: &v1alpha1.ScaleDecision{Want: 12, Applied: 8, Reason: "MaxReplicas"},
			Conditions:   []metav1.Condition{{Type: v1alpha1.ConditionDegraded, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonCrashLoop}},
		}),
		pool("video", v1alpha1.WorkerPoolStatus{Desired: 2, Ready: 2, SLO: &v1alpha1.ObjectiveStatus{}}),
		pool("new", v1alpha1.WorkerPoolStatus{}),
	).Build()
	want := `
# HELP yardmaster_workerpool_conditions WorkerPools of a namespace by a condition's status and reason.
# TYPE yardmaster_workerpool_conditions gauge
yardmaster_workerpool_conditions{condition="Degraded",namespace="a",reason="CrashLoop",status="True"} 1
# HELP yardmaster_workerpool_decisions WorkerPools of a namespace that are autoscaled, by the reason of their last decision.
# TYPE yardmaster_workerpool_decisions gauge
yardmaster_workerpool_decisions{namespace="a",reason="MaxReplicas"} 1
# HELP yardmaster_workerpool_messages Messages for all pools of a namespace, by state: backlog or in_flight.
# TYPE yardmaster_workerpool_messages gauge
yardmaster_workerpool_messages{namespace="a",state="backlog"} 1200
yardmaster_workerpool_messages{namespace="a",state="in_flight"} 50
# HELP yardmaster_workerpool_objectives WorkerPools of a namespace by whether they keep to their waiting time: True, False or Unknown.
# TYPE yardmaster_workerpool_objectives gauge
yardmaster_workerpool_objectives{met="False",namespace="a"} 1
yardmaster_workerpool_objectives{met="Unknown",namespace="a"} 1
# HELP yardmaster_workerpool_workers Workers of all pools of a namespace, by state: wanted, by what their figures ask for; desired, after all rules; ready, busy, draining.
# TYPE yardmaster_workerpool_workers gauge
yardmaster_workerpool_workers{namespace="a",state="busy"} 5
yardmaster_workerpool_workers{namespace="a",state="desired"} 10
yardmaster_workerpool_workers{namespace="a",state="draining"} 1
yardmaster_workerpool_workers{namespace="a",state="ready"} 8
yardmaster_workerpool_workers{namespace="a",state="wanted"} 14
`
	if diff := cmp.Diff(strings.TrimPrefix(want, "\n"), told(t, collector(reader))); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}

// told is what a collector tells, as it is scraped.
func told(t *testing.T, collector prometheus.Collector) string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(collector); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, family := range families {
		if _, err := expfmt.MetricFamilyToText(&text, family); err != nil {
			t.Fatal(err)
		}
	}
	return text.String()
}
