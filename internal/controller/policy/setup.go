package policy

import (
	"context"
	"fmt"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kube"
)

// staleWait is how long a pass on an outdated object waits for the cache to catch up.
const staleWait = 100 * time.Millisecond

// SetupWithManager has the manager run the reconciler.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, concurrency int) error {
	// What it counts is theirs, so their kinds must be there, too.
	for _, kind := range []string{"Queue", "WorkerPool"} {
		gvk := v1alpha1.GroupVersion.WithKind(kind)
		if _, err := mgr.GetRESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version); err != nil {
			return fmt.Errorf("looking for the CustomResourceDefinition of %s: %w", gvk.GroupKind(), err)
		}
	}
	if err := metrics.Registry.Register(policiesCollector{mgr.GetCache()}); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("policy").
		For(&v1alpha1.Policy{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.Queue{}, handler.EnqueueRequestsFromMapFunc(r.ofNamespace),
			builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Watches(&v1alpha1.WorkerPool{}, handler.EnqueueRequestsFromMapFunc(r.ofNamespace),
			builder.WithPredicates(predicate.Or[client.Object](predicate.LabelChangedPredicate{}, replicasChanged))).
		WithOptions(kube.Passes(concurrency)).
		Complete(kube.AfterStale(staleWait, reconcile.AsReconciler(mgr.GetClient(), r)))
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
	var policies v1alpha1.PolicyList
	if err := r.client.List(ctx, &policies, client.InNamespace(object.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing the Policies that may select an object")
		return nil
	}
	var all []reconcile.Request
	for i := range policies.Items {
		all = append(all, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&policies.Items[i])})
	}
	return all
}
