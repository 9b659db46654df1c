package policy

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kube"
)

// SetupWithManager has the manager run the reconciler.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, concurrency int) error {
	if err := registerMetrics(mgr.GetCache()); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("policy").
		For(&v1alpha1.Policy{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.Queue{}, handler.EnqueueRequestsFromMapFunc(r.ofNamespace),
			builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Watches(&v1alpha1.WorkerPool{}, handler.EnqueueRequestsFromMapFunc(r.ofNamespace),
			builder.WithPredicates(predicate.Or[client.Object](predicate.LabelChangedPredicate{}, replicasChanged))).
		WithOptions(kube.ControllerOptions(concurrency)).
		Complete(kube.RequeueOnConflict(reconcile.AsReconciler(mgr.GetClient(), r)))
}

// replicasChanged lets through a WorkerPool that has others: of all that its status tells
// every few seconds only that counts here.
var replicasChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool { return replicasOf(e.ObjectOld) != replicasOf(e.ObjectNew) },
}

func replicasOf(object client.Object) int32 {
	wp, _ := object.(*v1alpha1.WorkerPool)
	if wp == nil {
		return 0
	}
	return wp.Status.Replicas
}

// ofNamespace are all Policies of an object's namespace: one whose labels have changed may
// have been selected before by one that does not select it now.
func (r *Reconciler) ofNamespace(ctx context.Context, object client.Object) []reconcile.Request {
	return kube.RequestsForList(ctx, r.client, &v1alpha1.PolicyList{}, client.InNamespace(object.GetNamespace()))
}
