package controller

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker/brokerconn"
	"github.com/yardmaster/yardmaster/internal/kinds/queue"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool"
	"github.com/yardmaster/yardmaster/internal/kube"
)

// SetupWithManager adds the controller to the manager.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	if err := r.writeCache.Follow(context.Background(), mgr.GetCache(), &v1alpha1.WorkerPool{}); err != nil {
		return err
	}
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &v1alpha1.WorkerPool{}, queueIndex, indexedQueueNames); err != nil {
		return fmt.Errorf("indexing WorkerPools by their Queues: %w", err)
	}
	for _, object := range indexedByPool() {
		if err := mgr.GetFieldIndexer().IndexField(context.Background(), object, workerpool.LabelWorkerPool, poolLabels); err != nil {
			return fmt.Errorf("indexing the objects of WorkerPools: %w", err)
		}
	}
	if err := mgr.Add(r.peers); err != nil {
		return err
	}
	// Policies select pools by labels, and an annotation abandons draining.
	changed := predicate.Or[client.Object](
		predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{})
	spec := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	shared := []builder.OwnsOption{builder.OnlyMetadata, builder.WithPredicates(externalChange)}
	return ctrl.NewControllerManagedBy(mgr).
		Named("workerpool").
		For(&v1alpha1.WorkerPool{}, builder.WithPredicates(changed)).
		Owns(&appsv1.Deployment{}).
		Owns(&appsv1.StatefulSet{}).
		Owns(&corev1.ServiceAccount{}, shared...).
		Owns(&corev1.ConfigMap{}, shared...).
		Owns(&corev1.Service{}, shared...).
		Owns(&policyv1.PodDisruptionBudget{}, shared...).
		Owns(&networkingv1.NetworkPolicy{}, shared...).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(podToPool)).
		Watches(&v1alpha1.Queue{}, handler.EnqueueRequestsFromMapFunc(r.queueToPools),
			builder.WithPredicates(predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, changesForPools))).
		Watches(&v1alpha1.Policy{}, kube.NewNamespaceHandler(r.policies.Invalidate, r.poolsOfNamespace), spec).
		WatchesRawSource(source.Func(r.forwardNotifications)).
		WatchesRawSource(source.Func(r.peers.EnqueueTo)).
		WithOptions(kube.ControllerOptions(r.options.Concurrency)).
		Complete(kube.RequeueOnConflict(&kube.Loop[*v1alpha1.WorkerPool, Observed, workerpool.Decision]{
			Clients: r.Clients, Kind: r, Written: r.writeCache, New: func() *v1alpha1.WorkerPool { return &v1alpha1.WorkerPool{} },
			Finalizer: v1alpha1.WorkerPoolFinalizer,
		}))
}

func indexedByPool() []client.Object {
	return []client.Object{&appsv1.Deployment{}, &appsv1.StatefulSet{}, &corev1.Pod{}}
}

func poolLabels(object client.Object) []string {
	return []string{object.GetLabels()[workerpool.LabelWorkerPool]}
}

// externalChange selects changes of shared objects that other clients may have made, but no creations, which the
// reconciler makes itself.
var externalChange = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool { return contentVersion(e.ObjectOld) != contentVersion(e.ObjectNew) },
}

// forwardNotifications enqueues the pools whose broker was connected or disconnected, or whose queue has a message.
func (r *Reconciler) forwardNotifications(_ context.Context, requests workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	r.brokers.AddListener(func(n brokerconn.Notification) {
		r.memory.Each(func(key types.NamespacedName, _ types.UID, memory poolMemory) bool {
			if memory.broker == n.Key && (n.Queue == "" || slices.Contains(memory.queues, n.Queue)) {
				requests.Add(reconcile.Request{NamespacedName: key})
			}
			return true
		})
	})
	return nil
}

// podToPool returns the pool of a worker's Pod, from the annotation, because the label may be truncated.
func podToPool(_ context.Context, object client.Object) []reconcile.Request {
	name := object.GetAnnotations()[workerpool.AnnotationWorkerPool]
	if name == "" || metav1.GetControllerOf(object) == nil {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: object.GetNamespace(), Name: name}}}
}

// poolsOfNamespace returns all pools of a namespace, because a changed Policy may have selected other pools before.
func (r *Reconciler) poolsOfNamespace(ctx context.Context, namespace string) []reconcile.Request {
	return kube.RequestsForList(ctx, r.Client, &v1alpha1.WorkerPoolList{}, client.InNamespace(namespace))
}

// changesForPools selects Queues that became ready, that became the owner of their queue, or whose priorities on the
// broker changed. Without it, their pools would have no stats, and workers other priorities, until their next reconciliation.
var changesForPools = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, _ := e.ObjectOld.(*v1alpha1.Queue)
	after, _ := e.ObjectNew.(*v1alpha1.Queue)
	if before == nil || after == nil {
		return false
	}
	var on *v1alpha1.Broker
	if effective := after.Status.Effective; effective != nil {
		on = effective.Broker
	}
	return !isQueueReady(before) && isQueueReady(after) || !queue.OwnsQueue(before, on) && queue.OwnsQueue(after, on) ||
		!slices.Equal(before.Status.Priorities, after.Status.Priorities)
}}

func isQueueReady(q *v1alpha1.Queue) bool {
	return meta.IsStatusConditionTrue(q.Status.Conditions, v1alpha1.ConditionReady)
}

const queueIndex = "spec.queues.name"

func indexedQueueNames(object client.Object) []string {
	wp, _ := object.(*v1alpha1.WorkerPool)
	if wp == nil {
		return nil
	}
	var names []string
	for i := range wp.Spec.Queues {
		names = append(names, wp.Spec.Queues[i].Name)
	}
	return names
}

// queueToPools returns only the pools that consume a Queue. With all pools of the namespace, a thousand pools would be
// reconciled a thousand times when the operator starts.
func (r *Reconciler) queueToPools(ctx context.Context, object client.Object) []reconcile.Request {
	return kube.RequestsForList(ctx, r.Client, &v1alpha1.WorkerPoolList{}, client.InNamespace(object.GetNamespace()), client.MatchingFields{queueIndex: object.GetName()})
}
