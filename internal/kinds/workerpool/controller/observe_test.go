package controller

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestRevisionsAreTheDeploymentsAndStatefulSetsOfThePool(t *testing.T) {
	wp := &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "mail", UID: "1"}}
	created := metav1.NewTime(time.Unix(1_700_000_000, 0))
	metadata := func(name string, owner *v1alpha1.WorkerPool) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Namespace: "ns", Name: name, Labels: workerpool.WorkerSelector("mail"), CreationTimestamp: created,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, v1alpha1.GroupVersion.WithKind("WorkerPool"))},
		}
	}
	selector := func(hash string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{workerpool.LabelRevision: hash}}
	}
	other := &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "mail", UID: "2"}}
	cache := fake.NewClientBuilder()
	for _, object := range indexedByPool() { // as in the cache of the manager
		cache.WithIndex(object, workerpool.LabelWorkerPool, poolLabels)
	}
	r := &Reconciler{Clients: kube.Clients{Client: cache.WithObjects(
		&appsv1.Deployment{
			ObjectMeta: metadata("mail-a", wp), Spec: appsv1.DeploymentSpec{Replicas: new(int32(3)), Selector: selector("a")},
			Status: appsv1.DeploymentStatus{Conditions: []appsv1.DeploymentCondition{
				{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Message: "exceeded quota"},
			}},
		},
		&appsv1.StatefulSet{ObjectMeta: metadata("mail-b", wp), Spec: appsv1.StatefulSetSpec{Replicas: new(int32(2)), Selector: selector("b")}},
		&appsv1.Deployment{ObjectMeta: metadata("mail-c", other), Spec: appsv1.DeploymentSpec{Selector: selector("c")}},
	).Build()}}
	observed := &Observed{Observation: workerpool.Observation{Pool: wp}, workloads: map[string]client.Object{}}
	require.NoError(t, r.observeRevisions(t.Context(), observed))
	want := []workerpool.Revision{
		{Name: "mail-a", Hash: "a", Created: created.Time, Replicas: 3, CreationFailure: "exceeded quota"},
		{Name: "mail-b", Hash: "b", Created: created.Time, Replicas: 2, Ordered: true},
	}
	require.Equal(t, want, observed.Revisions)
	require.True(t, len(observed.workloads) == 2, "%d workloads, want those of the two revisions", len(observed.workloads))
}

func TestAnnotationsThatTheOperatorDidNotWriteAreForeign(t *testing.T) {
	written := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for title, row := range map[string]struct {
		annotations map[string]string
		want        workerpool.Protection
	}{
		"none":                    {nil, workerpool.Protection{}},
		"one of a user":           {map[string]string{workerpool.AnnotationSafeToEvict: "true"}, workerpool.Protection{Active: true, Foreign: true}},
		"another one of a user":   {map[string]string{workerpool.AnnotationDoNotDisrupt: "true"}, workerpool.Protection{Active: true, Foreign: true}},
		"the operator's":          {map[string]string{workerpool.AnnotationSafeToEvict: "false", workerpool.AnnotationProtection: written.Format(time.RFC3339Nano)}, workerpool.Protection{Active: true, Written: written}},
		"removed by the operator": {map[string]string{workerpool.AnnotationProtection: written.Format(time.RFC3339Nano)}, workerpool.Protection{Written: written}},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: row.annotations}}
		got := workerOfPod(pod).Protection
		require.True(t, got == row.want, "%s: %+v", title, got)
	}
}

// A user can change the broker of a Queue to the operator's, where its name may be that of a queue of
// another namespace. The pool waits until the Queue is proven to own the queue there.
func TestAPoolWaitsUntilItsQueueIsProvenToOwnTheQueueOnItsBroker(t *testing.T) {
	own := &v1alpha1.Broker{Engine: v1alpha1.EngineNATS}
	q := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "mail"}}
	q.Status.Name, q.Status.Effective = "shared", &v1alpha1.QueueEffective{QueueSettings: v1alpha1.QueueSettings{Broker: own}}
	q.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionConfigSynced, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonSynced}}
	observe := func(on *v1alpha1.Broker) *Observed {
		o := &Observed{queues: &observedQueues{all: []observedQueue{{object: q, broker: on}}}}
		o.checkOwnership()
		return o
	}
	o := observe(own)
	require.True(t, o.queues != nil && o.Problem == nil, "the Queue owns its queue, and the pool has the problem %v", o.Problem)
	want := decision.Problem{Reason: v1alpha1.ReasonQueueNotReady, Message: `spec.queues[0]: Queue "mail" does not own a queue on its broker yet; see its conditions`}
	if o := observe(nil); o.queues != nil || o.StatsError != want.Message || o.Problem == nil || *o.Problem != want {
		t.Errorf("queues %v, problem %v", o.queues, o.Problem)
	}
}
