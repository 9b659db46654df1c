package controller

import (
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kube/metric"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestGaugesShowTheStatusOfEachPool(t *testing.T) {
	want := `
yardmaster_workerpool_conditions{condition="Degraded",namespace="a",pool="mail",reason="CrashLoop",status="True"} 1
yardmaster_workerpool_decisions{namespace="a",pool="mail",reason="MaxReplicas"} 1
yardmaster_workerpool_messages{namespace="a",pool="mail",state="backlog"} 1200
yardmaster_workerpool_messages{namespace="a",pool="mail",state="in_flight"} 50
yardmaster_workerpool_messages{namespace="a",pool="mail",state="snoozed"} 7
yardmaster_workerpool_objectives{met="False",namespace="a",pool="mail"} 1
yardmaster_workerpool_objectives{met="Unknown",namespace="a",pool="video"} 1
yardmaster_workerpool_workers{namespace="a",pool="mail",state="breaker_open"} 2
yardmaster_workerpool_workers{namespace="a",pool="mail",state="busy"} 5
yardmaster_workerpool_workers{namespace="a",pool="mail",state="desired"} 8
yardmaster_workerpool_workers{namespace="a",pool="mail",state="draining"} 1
yardmaster_workerpool_workers{namespace="a",pool="mail",state="ready"} 6
yardmaster_workerpool_workers{namespace="a",pool="mail",state="recommended"} 12
yardmaster_workerpool_workers{namespace="a",pool="video",state="desired"} 2
yardmaster_workerpool_workers{namespace="a",pool="video",state="draining"} 0
yardmaster_workerpool_workers{namespace="a",pool="video",state="ready"} 2
yardmaster_workerpool_workers{namespace="a",pool="video",state="recommended"} 2
`
	require.Equal(t, strings.TrimPrefix(want, "\n"), gaugesOfTwoPools(t))
}

// gaugesOfTwoPools returns the gauges of the pools mail and video, which want 8 and 2 workers.
func gaugesOfTwoPools(t *testing.T) string {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	pool := func(name string, status v1alpha1.WorkerPoolStatus) *v1alpha1.WorkerPool {
		return &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name}, Status: status}
	}
	reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		pool("mail", v1alpha1.WorkerPoolStatus{
			Desired: 8, WorkerCounts: v1alpha1.WorkerCounts{Ready: 6, Draining: 1}, Busy: new(int32(5)), OpenBreakers: new(int32(2)), Snoozed: new(int64(7)), MessageCounts: v1alpha1.MessageCounts{Backlog: new(int64(1200)), InFlight: new(int64(50))},
			ObjectiveMet:   metav1.ConditionFalse,
			LastDecision:   &v1alpha1.ScaleDecision{Recommendation: 12, Explanation: v1alpha1.Explanation{Reason: "MaxReplicas"}},
			ObservedStatus: v1alpha1.ObservedStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ConditionDegraded, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonCrashLoop}}},
		}),
		pool("video", v1alpha1.WorkerPoolStatus{Desired: 2, WorkerCounts: v1alpha1.WorkerCounts{Ready: 2}, ObjectiveMet: metav1.ConditionUnknown}),
	).Build()
	return gatherText(t, statusCollector(reader))
}

func TestGaugesWithoutNamesAreSumsOfANamespace(t *testing.T) {
	metric.OmitObjectNames(true)
	t.Cleanup(func() { metric.OmitObjectNames(false) })
	const sum = `yardmaster_workerpool_workers{namespace="a",pool="",state="desired"} 10`
	got := gaugesOfTwoPools(t)
	require.Contains(t, got, sum)
	require.True(t, !strings.Contains(got, "mail") && !strings.Contains(got, "video"), "the name of a pool, in\n%s", got)
}

func TestCountersOfAPoolEndWithIt(t *testing.T) {
	wp := &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "counted"}}
	countChanges(wp, &v1alpha1.WorkerPoolStatus{}, &v1alpha1.WorkerPoolStatus{Desired: 3})
	series := `yardmaster_workerpool_scalings_total{direction="up",namespace="a",pool="counted",reason="Manual"} 1`
	require.Contains(t, gatherText(t, scalingsTotal), series)
	forgetMetrics(client.ObjectKeyFromObject(wp))
	text := gatherText(t, scalingsTotal)
	require.True(t, !strings.Contains(text, "counted"), "counters of a pool that does not exist:\n%s", text)
}

// gatherText returns the metrics of a collector in the text format, without comments.
func gatherText(t *testing.T, collector prometheus.Collector) string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(collector))
	families, err := registry.Gather()
	require.NoError(t, err)
	var text strings.Builder
	for _, family := range families {
		_, err := expfmt.MetricFamilyToText(&text, family)
		require.NoError(t, err)
	}
	return regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(text.String(), "")
}
