package controller

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker/brokerconn"
	"github.com/yardmaster/yardmaster/internal/kinds/queue"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/internal/kube/metric"
)

// SetupWithManager adds the reconciler to the manager.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	if err := r.writeCache.Follow(context.Background(), mgr.GetCache(), &v1alpha1.Queue{}); err != nil {
		return err
	}
	if err := metric.Register(metric.NewSumCollector(mgr.GetCache(), &v1alpha1.QueueList{}, sumStatuses, messagesGauge, queuesGauge, replicationGauge)); err != nil {
		return err
	}
	if err := mgr.Add(r.answers); err != nil {
		return err
	}
	// All Queues of the namespace, because a changed Policy may no longer select a Queue that it selected before.
	queuesOfNamespace := func(ctx context.Context, namespace string) []reconcile.Request {
		return kube.RequestsForList(ctx, r.Client, &v1alpha1.QueueList{}, client.InNamespace(namespace))
	}
	// Policies select by labels; annotations abandon and request.
	isRelevant := predicate.Or[client.Object](
		predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{})
	return ctrl.NewControllerManagedBy(mgr).
		Named("queue").
		For(&v1alpha1.Queue{}, builder.WithPredicates(isRelevant)).
		Watches(&v1alpha1.Policy{}, kube.NewNamespaceHandler(r.policies.Invalidate, queuesOfNamespace),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.Func(r.watchBrokers)).
		WatchesRawSource(source.Func(r.answers.EnqueueTo)).
		WithOptions(kube.ControllerOptions(r.options.Concurrency)).
		Complete(kube.RequeueOnConflict(&kube.Loop[*v1alpha1.Queue, queue.Observation, queue.Decision]{
			Clients: r.Clients, Kind: r, Written: r.writeCache, New: func() *v1alpha1.Queue { return &v1alpha1.Queue{} },
			Finalizer: v1alpha1.QueueFinalizer,
		}))
}

// watchBrokers enqueues the Queues of a broker whose connection changed, and a Queue that has a message.
func (r *Reconciler) watchBrokers(_ context.Context, requests workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	r.brokers.AddListener(func(notification brokerconn.Notification) {
		r.tracked.Each(func(key types.NamespacedName, _ types.UID, t trackedQueue) bool {
			if t.broker == notification.Key && (notification.Queue == "" || notification.Queue == t.name) {
				requests.Add(reconcile.Request{NamespacedName: key})
			}
			return true
		})
	})
	return nil
}
