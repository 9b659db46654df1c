package queue

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/brokerconn"
	"github.com/yardmaster/yardmaster/internal/kube"
)

// SetupWithManager has the manager run the reconciler.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	if err := registerMetrics(mgr.GetCache()); err != nil {
		return err
	}
	// Policies select by labels, and annotations let go or take over.
	changed := predicate.Or[client.Object](
		predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{})
	return ctrl.NewControllerManagedBy(mgr).
		Named("queue").
		For(&v1alpha1.Queue{}, builder.WithPredicates(changed)).
		Watches(&v1alpha1.Policy{}, handler.EnqueueRequestsFromMapFunc(r.ofNamespace),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.Func(r.listen)).
		WithOptions(kube.ControllerOptions(r.options.Concurrency)).
		Complete(kube.RequeueOnConflict(r))
}

// listen has the Queues looked at whose broker was found or lost, or that have a message.
func (r *Reconciler) listen(_ context.Context, requests workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	r.keeper.AddListener(func(e brokerconn.Notification) {
		for _, key := range r.known.concerned(e) {
			requests.Add(reconcile.Request{NamespacedName: key})
		}
	})
	return nil
}

// ofNamespace are all Queues of an object's namespace: a Policy that changes may have
// selected one before that it does not select now.
func (r *Reconciler) ofNamespace(ctx context.Context, object client.Object) []reconcile.Request {
	return kube.RequestsForList(ctx, r.client, &v1alpha1.QueueList{}, client.InNamespace(object.GetNamespace()))
}
