package agenticsession

import (
	"context"
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

	"github.com/yardmaster/yardmaster/internal/session"
)

// deletionTracker measures how long the Jobs and Pods of deleted sessions stay. The garbage
// collector removes them, so it is the only sign of one that does not. It reconciles nothing.
type deletionTracker struct {
	children client.Reader
	clock    clock.PassiveClock
	// observeDuration is told how long it was until the last was gone.
	observeDuration func(time.Duration)

	mu sync.Mutex
	// deletedSince is when sessions were deleted of which something is left, by UID.
	deletedSince map[types.UID]time.Time
}

func newDeletionTracker(children client.Reader, c clock.PassiveClock) *deletionTracker {
	return &deletionTracker{
		children: children, clock: c, deletedSince: map[types.UID]time.Time{},
		observeDuration: func(d time.Duration) { childrenDeletionSeconds.Observe(d.Seconds()) },
	}
}

// deleteHandler has one of the two below told of what is deleted, and nothing reconciled.
func deleteHandler(told func(context.Context, client.Object)) handler.EventHandler {
	return handler.Funcs{
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, _ workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			told(ctx, e.Object)
		},
	}
}

// sessionDeleted begins to measure. One that waited for its children is gone after them.
func (d *deletionTracker) sessionDeleted(ctx context.Context, s client.Object) {
	d.mu.Lock()
	defer d.mu.Unlock()
	since, waited := d.clock.Now(), s.GetDeletionTimestamp() != nil
	if waited {
		since = s.GetDeletionTimestamp().Time
	}
	switch {
	case d.hasChildren(ctx, s.GetNamespace(), s.GetUID()):
		d.deletedSince[s.GetUID()] = since
	case waited:
		d.observeDuration(d.clock.Since(since))
	}
}

// childDeleted ends it with the last one.
func (d *deletionTracker) childDeleted(ctx context.Context, child client.Object) {
	d.mu.Lock()
	defer d.mu.Unlock()
	uid := types.UID(child.GetLabels()[session.LabelSessionUID])
	since, measured := d.deletedSince[uid]
	if !measured || d.hasChildren(ctx, child.GetNamespace(), uid) {
		return
	}
	delete(d.deletedSince, uid)
	d.observeDuration(d.clock.Since(since))
}

// hasChildren tells whether there are Jobs or Pods of a session.
func (d *deletionTracker) hasChildren(ctx context.Context, namespace string, uid types.UID) bool {
	var jobs batchv1.JobList
	var pods corev1.PodList
	for _, list := range []client.ObjectList{&jobs, &pods} {
		if err := d.children.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{uidIndex: string(uid)}, client.UnsafeDisableDeepCopy); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Listing what is left of a deleted session")
			return false
		}
	}
	return len(jobs.Items)+len(pods.Items) > 0
}
