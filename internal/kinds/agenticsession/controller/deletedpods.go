package controller

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/internal/kube"
)

// deletedPods remembers the last deleted Pod of each session as it was last observed. A Pod can end
// and be deleted before a reconciliation observes it, and the runner's result with it.
type deletedPods struct{ *kube.Store[*corev1.Pod] }

func newDeletedPods() *deletedPods { return &deletedPods{kube.NewStore[*corev1.Pod]()} }

// eventHandler requeues the session of a Pod, and remembers the Pod if it was deleted.
func (d *deletedPods) eventHandler() handler.EventHandler {
	enqueue := handler.EnqueueRequestsFromMapFunc(childToSession)
	return handler.Funcs{
		CreateFunc: enqueue.Create,
		UpdateFunc: enqueue.Update,
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			if pod, ok := e.Object.(*corev1.Pod); ok {
				d.Set(sessionOfPod(pod), pod)
			}
			enqueue.Delete(ctx, e, queue)
		},
	}
}

// sessionOfPod returns the identity of a Pod's session.
func sessionOfPod(pod *corev1.Pod) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: pod.Namespace, Name: pod.Labels[agenticsession.LabelSession], UID: types.UID(pod.Labels[agenticsession.LabelSessionUID]),
	}}
}

// withDeletedPod adds the session's deleted Pod to those that exist, and returns its UID; empty if it has none.
func (d *deletedPods) withDeletedPod(pods []corev1.Pod, s *v1alpha1.AgenticSession) ([]corev1.Pod, types.UID) {
	deleted, found := d.Get(s)
	if !found || slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return pod.UID == deleted.UID }) {
		return pods, ""
	}
	return append(pods, *deleted), deleted.UID
}
