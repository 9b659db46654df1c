package controller

import (
	"context"
	"slices"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/internal/kube"
)

// deletedPods remembers the last deleted Pod of each session as it was last observed, because a Pod can end and be
// deleted, with the runner's result, before a reconciliation observes it.
type deletedPods struct{ *kube.Store[*corev1.Pod] }

func newDeletedPods() *deletedPods { return &deletedPods{kube.NewStore[*corev1.Pod]()} }

func (d *deletedPods) eventHandler() handler.EventHandler {
	enqueue := handler.EnqueueRequestsFromMapFunc(childToSession)
	return handler.Funcs{
		CreateFunc: enqueue.Create,
		UpdateFunc: enqueue.Update,
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			if pod, ok := e.Object.(*corev1.Pod); ok {
				d.Set(sessionOf(pod), pod)
			}
			enqueue.Delete(ctx, e, queue)
		},
	}
}

// withDeletedPod adds the session's deleted Pod to the Pods that exist, and returns its UID; empty if none was deleted.
func (d *deletedPods) withDeletedPod(pods []corev1.Pod, s *v1alpha1.AgenticSession) ([]corev1.Pod, types.UID) {
	deleted, found := d.Get(s)
	if !found || slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return pod.UID == deleted.UID }) {
		return pods, ""
	}
	return append(pods, *deleted), deleted.UID
}

// deletionTracker measures how long the Jobs and Pods of deleted sessions exist. Only this metric shows whether the
// garbage collector deletes them.
type deletionTracker struct {
	children client.Reader
	clock    clock.PassiveClock
	// observeDuration receives the time until the last child was deleted.
	observeDuration func(time.Duration)

	mu sync.Mutex
	// deletedSince contains the deletion times of sessions with remaining children, by UID: a
	// new session can have the same name.
	deletedSince map[types.UID]time.Time
}

func newDeletionTracker(children client.Reader, c clock.PassiveClock) *deletionTracker {
	return &deletionTracker{
		children: children, clock: c, deletedSince: map[types.UID]time.Time{},
		observeDuration: func(d time.Duration) { childrenDeletionSeconds.Observe(d.Seconds()) },
	}
}

// deleteHandler calls a function for each deleted object, without requeuing.
func deleteHandler(onDelete func(context.Context, client.Object)) handler.EventHandler {
	return handler.Funcs{
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, _ workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			onDelete(ctx, e.Object)
		},
	}
}

// sessionDeleted starts the measurement. A session that is deleted in the foreground disappears after its children, so
// its measurement ends at once.
func (d *deletionTracker) sessionDeleted(ctx context.Context, s client.Object) {
	d.mu.Lock()
	defer d.mu.Unlock()
	since, inForeground := d.clock.Now(), s.GetDeletionTimestamp() != nil
	if inForeground {
		since = s.GetDeletionTimestamp().Time
	}
	switch {
	case d.hasChildren(ctx, s.GetNamespace(), s.GetUID()):
		d.deletedSince[s.GetUID()] = since
	case inForeground:
		d.observeDuration(d.clock.Since(since))
	}
}

func (d *deletionTracker) childDeleted(ctx context.Context, child client.Object) {
	d.mu.Lock()
	defer d.mu.Unlock()
	uid := types.UID(child.GetLabels()[agenticsession.LabelSessionUID])
	since, measured := d.deletedSince[uid]
	if !measured || d.hasChildren(ctx, child.GetNamespace(), uid) {
		return
	}
	delete(d.deletedSince, uid)
	d.observeDuration(d.clock.Since(since))
}

func (d *deletionTracker) hasChildren(ctx context.Context, namespace string, uid types.UID) bool {
	var jobs batchv1.JobList
	var pods corev1.PodList
	for _, list := range []client.ObjectList{&jobs, &pods} {
		if err := d.children.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{uidIndex: string(uid)}, client.UnsafeDisableDeepCopy); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Failed to list the remaining Jobs and Pods of a deleted session; its deletion is not measured")
			return false
		}
	}
	return len(jobs.Items)+len(pods.Items) > 0
}
