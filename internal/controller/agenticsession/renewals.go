package agenticsession

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/internal/session"
)

// renewal is the last renewal of a session's Lease, and when this process observed it.
type renewal struct{ renewTime, observedTime time.Time }

// renewals remembers the last renewal of each session's Lease. It keeps that of a deleted Lease: the time in which a
// runner is idle counts on when the Lease is created again.
type renewals struct {
	*kube.Store[renewal]

	clock clock.PassiveClock
}

func newRenewals(c clock.PassiveClock) *renewals {
	return &renewals{kube.NewStore[renewal](), c}
}

// eventHandler remembers renewals. It requeues the session of a Lease that was deleted, renewed for the first time, or
// whose run-finished annotation changed: other renewals are too frequent to reconcile.
func (r *renewals) eventHandler() handler.EventHandler {
	enqueue := handler.EnqueueRequestsFromMapFunc(childToSession)
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, _ workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			r.remember(e.Object)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			r.remember(e.ObjectNew)
			if isFirstRenewal(e.ObjectOld, e.ObjectNew) ||
				e.ObjectOld.GetAnnotations()[session.AnnotationRunFinished] != e.ObjectNew.GetAnnotations()[session.AnnotationRunFinished] {
				enqueue.Update(ctx, e, queue)
			}
		},
		DeleteFunc: enqueue.Delete,
	}
}

func isFirstRenewal(before, after client.Object) bool {
	return renewTimeOf(before).IsZero() && !renewTimeOf(after).IsZero()
}

func renewTimeOf(object client.Object) time.Time {
	if lease, ok := object.(*coordinationv1.Lease); ok && lease.Spec.RenewTime != nil {
		return lease.Spec.RenewTime.Time
	}
	return time.Time{}
}

// remember remembers a renewal, in the order of the events.
func (r *renewals) remember(lease client.Object) {
	renewTime := renewTimeOf(lease)
	if renewTime.IsZero() { // it was created again
		return
	}
	now := r.clock.Now()
	r.Update(sessionOfLease(lease), func(last *renewal) {
		if !last.renewTime.Equal(renewTime) {
			*last = renewal{renewTime, now}
		}
	})
}

// newest returns the last renewal of a session's Lease, given the Lease in the cache. The cache may be a moment ahead of
// the events.
func (r *renewals) newest(lease client.Object) renewal {
	last, found := r.Get(sessionOfLease(lease))
	renewTime := renewTimeOf(lease)
	if renewTime.IsZero() || found && last.renewTime.Equal(renewTime) {
		return last
	}
	return renewal{renewTime, r.clock.Now()}
}

// sessionOfLease returns the identity of a Lease's session.
func sessionOfLease(lease client.Object) *metav1.PartialObjectMetadata {
	labels := lease.GetLabels()
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: lease.GetNamespace(), Name: labels[session.LabelSession], UID: types.UID(labels[session.LabelSessionUID]),
	}}
}
