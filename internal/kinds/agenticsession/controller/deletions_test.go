package controller

import (
	"context"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/workqueue"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/internal/kube"
)

func newTestSession(uid types.UID) *v1alpha1.AgenticSession {
	s := &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "fix", UID: uid}}
	s.Status.Attempt.JobName = "fix-r1-a1"
	return s
}

func TestDeletedPodIsObservedUntilAttemptEnds(t *testing.T) {
	d := newDeletedPods()
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "fix-r1-a1-x", UID: "pod", Labels: map[string]string{
		agenticsession.LabelSession: "fix", agenticsession.LabelSessionUID: "one",
	}}}
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	d.eventHandler().Delete(context.Background(), event.DeleteEvent{Object: &pod}, queue)
	if queue.Len() != 1 {
		t.Error("the session is not requeued")
	}
	s := newTestSession("one")
	if got, uid := d.withDeletedPod(nil, s); len(got) != 1 || got[0].UID != "pod" || uid != "pod" {
		t.Errorf("%d Pods", len(got))
	}
	if got, uid := d.withDeletedPod([]corev1.Pod{pod}, s); len(got) != 1 || uid != "" {
		t.Error("the Pod is listed twice")
	}
	if got, _ := d.withDeletedPod(nil, newTestSession("another of its name")); len(got) != 0 {
		t.Error("another session with the same name gets the Pod")
	}
	r := &Reconciler{createdJobs: kube.NewStore[createdJob](), deletedPods: d, workspaces: newWorkspaceReservations()}
	r.forgetUnused(s)
	if got, _ := d.withDeletedPod(nil, s); len(got) != 1 {
		t.Error("the Pod is forgotten while its attempt is open")
	}
	s.Status.Attempt.JobName = ""
	r.forgetUnused(s)
	if got, _ := d.withDeletedPod(nil, s); len(got) != 0 {
		t.Error("the Pod is kept after its attempt ended")
	}
}

func TestDeletionIsMeasuredUntilLastJobAndPodAreDeleted(t *testing.T) {
	metadata := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Namespace: "ns", Labels: map[string]string{agenticsession.LabelSessionUID: "1"}}
	}
	job, pod := &batchv1.Job{ObjectMeta: metadata("job")}, &corev1.Pod{ObjectMeta: metadata("pod")}
	deletionTime := time.Unix(1e9, 0)
	inForeground := new(metav1.NewTime(deletionTime.Add(-time.Minute)))
	tests := map[string]struct {
		deleted  *metav1.Time
		existing []client.Object
		want     []time.Duration
	}{
		"a Job and its Pod are deleted one after the other": {nil, []client.Object{job, pod}, []time.Duration{2 * time.Second}},
		"a session without a Job":                           {nil, nil, nil},
		"a session deleted in the foreground":               {inForeground, nil, []time.Duration{time.Minute}},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			now := testingclock.NewFakePassiveClock(deletionTime)
			byUID := func(o client.Object) []string { return []string{o.GetLabels()[agenticsession.LabelSessionUID]} }
			children := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(test.existing...).
				WithIndex(&batchv1.Job{}, uidIndex, byUID).WithIndex(&corev1.Pod{}, uidIndex, byUID).Build()
			d := newDeletionTracker(children, now)
			var durations []time.Duration
			d.observeDuration = func(duration time.Duration) { durations = append(durations, duration) }
			d.sessionDeleted(t.Context(), &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{
				Name: "fix", Namespace: "ns", UID: "1", DeletionTimestamp: test.deleted,
			}})
			for i, object := range test.existing {
				now.SetTime(deletionTime.Add(time.Duration(i+1) * time.Second))
				if err := children.Delete(t.Context(), object.DeepCopyObject().(client.Object)); err != nil {
					t.Fatal(err)
				}
				d.childDeleted(t.Context(), object)
			}
			if !slices.Equal(durations, test.want) || len(d.deletedSince) != 0 {
				t.Errorf("measured %v, want %v; %d sessions are still tracked", durations, test.want, len(d.deletedSince))
			}
		})
	}
}
