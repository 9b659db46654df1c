package controller

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/internal/kube"
)

func newTestSession(uid types.UID) *v1alpha1.AgenticSession {
	s := &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "fix", UID: uid}}
	s.Status.Job = "fix-r1-a1"
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
	s.Status.Job = ""
	r.forgetUnused(s)
	if got, _ := d.withDeletedPod(nil, s); len(got) != 0 {
		t.Error("the Pod is kept after its attempt ended")
	}
}
