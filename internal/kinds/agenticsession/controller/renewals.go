package controller

import (
	"context"
	"math"
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

	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/internal/kube"
)

type renewal struct {
	renewTime, observedTime time.Time
	cost                    agenticsession.CostReport
	// remainingCost is the cost of the open attempt at which the session must be stopped; 0 if not known.
	remainingCost int64
}

// renewals remembers the last renewal of each session's Lease, even if it was deleted: the idle time of a runner
// continues when the Lease is created again.
type renewals struct {
	*kube.Store[renewal]

	clock clock.PassiveClock
}

func newRenewals(c clock.PassiveClock) *renewals {
	return &renewals{kube.NewStore[renewal](), c}
}

// eventHandler remembers renewals. It requeues the session of a Lease that was deleted, renewed for the first time, or
// whose run-finished annotation changed: other renewals are too frequent to reconcile. A higher cost is reconciled at
// once if it reaches the limit, and otherwise at most as often as it is recorded.
func (r *renewals) eventHandler() handler.EventHandler {
	enqueue := handler.EnqueueRequestsFromMapFunc(childToSession)
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, _ workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			r.remember(e.Object)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			costChanged, reachesLimit := r.remember(e.ObjectNew)
			isFirst := renewTimeOf(e.ObjectOld).IsZero() && !renewTimeOf(e.ObjectNew).IsZero()
			if reachesLimit || isFirst ||
				e.ObjectOld.GetAnnotations()[agenticsession.AnnotationRunFinished] != e.ObjectNew.GetAnnotations()[agenticsession.AnnotationRunFinished] {
				enqueue.Update(ctx, e, queue)
				return
			}
			if costChanged {
				for _, request := range childToSession(ctx, e.ObjectNew) {
					queue.AddAfter(request, agenticsession.CostRecordInterval)
				}
			}
		},
		DeleteFunc: enqueue.Delete,
	}
}

func renewTimeOf(object client.Object) time.Time {
	if lease, ok := object.(*coordinationv1.Lease); ok && lease.Spec.RenewTime != nil {
		return lease.Spec.RenewTime.Time
	}
	return time.Time{}
}

// remember remembers a renewal and its cost, in the order of the events. It reports whether the cost changed, and whether
// it reaches the limit.
func (r *renewals) remember(lease client.Object) (costChanged, reachesLimit bool) {
	renewTime, now := renewTimeOf(lease), r.clock.Now()
	annotation := lease.GetAnnotations()[agenticsession.AnnotationCost]
	if renewTime.IsZero() && annotation == "" { // the Lease was created again
		return false, false
	}
	r.Update(sessionOf(lease), func(last *renewal) {
		if !renewTime.IsZero() && !last.renewTime.Equal(renewTime) {
			last.renewTime, last.observedTime = renewTime, now
		}
		cost := last.cost.Next(annotation)
		costChanged = cost != last.cost
		reachesLimit = costChanged && cost.Micros() >= last.remainingCost
		last.cost = cost
	})
	return costChanged, reachesLimit
}

// newest returns the last renewal of a session's Lease, given the Lease in the cache, which may be ahead of the events.
func (r *renewals) newest(lease client.Object) renewal {
	last, found := r.Get(sessionOf(lease))
	last.cost = last.cost.Next(lease.GetAnnotations()[agenticsession.AnnotationCost])
	if renewTime := renewTimeOf(lease); !renewTime.IsZero() && (!found || !last.renewTime.Equal(renewTime)) {
		last.renewTime, last.observedTime = renewTime, r.clock.Now()
	}
	return last
}

// setRemainingCost remembers at which cost of the open attempt its session must be reconciled at once.
func (r *renewals) setRemainingCost(o *agenticsession.Observation) {
	remaining, limited := agenticsession.RemainingCost(o)
	if !limited {
		remaining = math.MaxInt64
	}
	r.Update(o.Session, func(last *renewal) { last.remainingCost = remaining })
}

// sessionOf returns the identity of the session of a Lease or Pod.
func sessionOf(child client.Object) *metav1.PartialObjectMetadata {
	labels := child.GetLabels()
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: child.GetNamespace(), Name: labels[agenticsession.LabelSession], UID: types.UID(labels[agenticsession.LabelSessionUID]),
	}}
}
