//go:build e2e

package e2e

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/permissions"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// Each controller is deployed alone after the others, so this also tests that `make deploy` removes the
// permissions of the controller before it.
func testSingleControllers(t *testing.T) {
	page, err := permissions.ReadPage(filepath.Join(repositoryRoot, "docs", "reference", "permissions.md"))
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, errors.Join(deployOperator(context.Background(), watchedNamespaces), waitForOperator(context.Background())))
	})
	for controller, work := range map[string]func(*testing.T){
		"sequentialjob": workOfSequentialJobs, "queue": workOfQueues, "policy": workOfPolicies,
		"workerpool": workOfWorkerPools, "agenticsession": workOfAgenticSessions, "egressproxy": workOfEgressProxies,
		"schedule": reportOfSchedules,
	} {
		t.Run(controller, func(t *testing.T) {
			require.NoError(t, deployOperator(t.Context(), watchedNamespaces, "CONTROLLERS="+controller))
			require.NoError(t, waitForOperator(t.Context()))
			want := permissions.Union(
				page.Columns(permissions.WatchedNamespaces, controller),
				page.Columns(permissions.AllNamespaces, "metrics", "admission policies", "identity", "API server", controller),
			)
			var granted []string
			poll.Until(t, "the permissions of other controllers to be removed", func() bool {
				granted = operatorPermissions(t, tenantNamespace)
				return len(granted) <= len(want)
			})
			require.Equal(t, want, granted)
			work(t)
			for line := range strings.Lines(readLog(t, operatorNamespace, leaderPod(t).Name, "")) {
				require.True(t, !strings.Contains(line, "forbidden"), "a permission is missing: %s", line)
			}
		})
	}
}

func workOfSequentialJobs(t *testing.T) {
	createSequenceIn(t, tenantNamespace, testbuilder.SequentialJob("alone", "").Step("a", shellScript("true")).Obj()).waitForPhase(v1alpha1.PhaseCompleted)
}

// reportOfSchedules checks what a Schedule reports without the controller of its runs.
func reportOfSchedules(t *testing.T) {
	s := &v1alpha1.Schedule{ObjectMeta: tenantMeta("alone")}
	s.Spec.Schedule = "0 2 * * *"
	s.Spec.SequentialJob = &v1alpha1.ScheduleTemplate{Spec: runtime.RawExtension{Raw: []byte(`{"containers": [{"name": "a", "image": "a:1"}]}`)}}
	createAndWait(t, s, func() []metav1.Condition { return s.Status.Conditions }, v1alpha1.ReasonKindDisabled)
}

func workOfAgenticSessions(t *testing.T) {
	s := createSessionIn(t, tenantNamespace, "alone", interactiveRunner, "", func(spec *v1alpha1.AgenticSessionSpec) {
		spec.Interactive = true
		setPersistentWorkspace(spec)
	})
	s.waitForPhase(v1alpha1.SessionRunning)
}

func workOfEgressProxies(t *testing.T) {
	r := &v1alpha1.SessionRunner{ObjectMeta: tenantMeta("hosts")}
	r.Spec.Image, r.Spec.Network.Egress = busyboxImage, []v1alpha1.SessionEgress{{Hosts: []v1alpha1.EgressHost{"api.example.com"}}}
	createUntilEnd(t, r)
	poll.Until(t, "the proxy to run", func() bool {
		require.NoError(t, cluster.Get(t.Context(), client.ObjectKeyFromObject(r), r))
		return meta.IsStatusConditionTrue(r.Status.Conditions, v1alpha1.ConditionEgressProxyReady)
	})
}

func workOfQueues(t *testing.T) {
	q := &v1alpha1.Queue{ObjectMeta: tenantMeta("alone")}
	q.Spec.Broker = &v1alpha1.Broker{Engine: v1alpha1.EngineNATS}
	q.Spec.Broker.URLSecretRef.Name = "missing"
	createAndWait(t, q, func() []metav1.Condition { return q.Status.Conditions }, v1alpha1.ReasonSecretNotFound)
}

func workOfPolicies(t *testing.T) {
	p := &v1alpha1.Policy{ObjectMeta: tenantMeta("alone")}
	p.Spec.Defaults = &v1alpha1.PolicyDefaults{QueueSettings: v1alpha1.QueueSettings{Broker: &v1alpha1.Broker{Engine: v1alpha1.EngineNATS}}}
	p.Spec.Defaults.Broker.URLSecretRef.Name = "missing"
	createAndWait(t, p, func() []metav1.Condition { return p.Status.Conditions }, v1alpha1.ReasonSecretNotFound)
}

// createAndWait waits until Ready has the reason.
func createAndWait(t *testing.T, object client.Object, conditions func() []metav1.Condition, reason string) {
	t.Helper()
	createUntilEnd(t, object)
	poll.Until(t, object.GetName()+" to be reconciled", func() bool {
		require.NoError(t, cluster.Get(t.Context(), client.ObjectKeyFromObject(object), object))
		ready := meta.FindStatusCondition(conditions(), v1alpha1.ConditionReady)
		return ready != nil && ready.Reason == reason
	})
}

func workOfWorkerPools(t *testing.T) {
	wp := &v1alpha1.WorkerPool{ObjectMeta: tenantMeta("alone")}
	wp.Spec.Image, wp.Spec.Autoscaling = busyboxImage, &v1alpha1.Autoscaling{MinReplicas: 1, MaxReplicas: 1}
	wp.Spec.Source = &v1alpha1.Source{External: &v1alpha1.ExternalSource{Address: "192.0.2.1:1"}}
	createUntilEnd(t, wp)
	poll.Until(t, "the pool's Deployment", func() bool {
		var list appsv1.DeploymentList
		require.NoError(t, cluster.List(t.Context(), &list, client.InNamespace(tenantNamespace)))
		return slices.ContainsFunc(list.Items, func(d appsv1.Deployment) bool { return metav1.IsControlledBy(&d, wp) })
	})
}
