package workerpool

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
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
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/brokerconn"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/internal/pool"
)

// SetupWithManager has the manager run the reconciler.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &v1alpha1.WorkerPool{}, queueIndex, queueNames); err != nil {
		return fmt.Errorf("indexing WorkerPools by their Queues: %w", err)
	}
	// Policies select by labels, and an annotation gives up on draining.
	changed := predicate.Or[client.Object](
		predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{})
	spec := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	shared := []builder.OwnsOption{builder.OnlyMetadata, builder.WithPredicates(byHand)}
	c, err := ctrl.NewControllerManagedBy(mgr).
		Named("workerpool").
		For(&v1alpha1.WorkerPool{}, builder.WithPredicates(changed)).
		Owns(&appsv1.Deployment{}).
		Owns(&appsv1.StatefulSet{}).
		Owns(&corev1.ServiceAccount{}, shared...).
		Owns(&corev1.ConfigMap{}, shared...).
		Owns(&corev1.Service{}, shared...).
		Owns(&policyv1.PodDisruptionBudget{}, shared...).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(ofPod)).
		Watches(&v1alpha1.Queue{}, handler.EnqueueRequestsFromMapFunc(r.ofQueue),
			builder.WithPredicates(predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, becomesReady))).
		Watches(&v1alpha1.Policy{}, handler.EnqueueRequestsFromMapFunc(r.ofNamespace), spec).
		WatchesRawSource(source.Func(r.listen)).
		WithOptions(kube.ControllerOptions(r.options.Concurrency)).
		Build(kube.RequeueOnConflict(r))
	if err != nil {
		return err
	}
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { return r.awaitPodMonitors(ctx, mgr, c) }))
}

// byHand lets through what somebody may have done to an object that all revisions share.
// Of one that comes there is nothing to say: it was made in a pass.
var byHand = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool { return stateOf(e.ObjectOld) != stateOf(e.ObjectNew) },
}

// listen has the pools looked at whose broker was found or lost, or that have a message.
func (r *Reconciler) listen(_ context.Context, requests workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	r.brokers.AddListener(func(e brokerconn.Notification) {
		for _, key := range r.known.concerned(e) {
			requests.Add(reconcile.Request{NamespacedName: key})
		}
	})
	return nil
}

// ofPod is the pool that a Pod works for. Its name stands on the revision that made the
// Pod; a label has it, too, unless it is too long for one.
func ofPod(_ context.Context, object client.Object) []reconcile.Request {
	name := object.GetAnnotations()[pool.AnnotationWorkerPool]
	if name == "" || metav1.GetControllerOf(object) == nil {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: object.GetNamespace(), Name: name}}}
}

// ofNamespace are all pools of a Policy's namespace: one that changes may have selected a
// pool before that it does not select now.
func (r *Reconciler) ofNamespace(ctx context.Context, object client.Object) []reconcile.Request {
	return kube.RequestsForList(ctx, r.client, &v1alpha1.WorkerPoolList{}, client.InNamespace(object.GetNamespace()))
}

// becomesReady lets through a Queue that is made on its broker now. A pool that was looked
// at before that has no figures, and would have waited for its next look.
var becomesReady = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return !isReady(e.ObjectOld) && isReady(e.ObjectNew) }}

func isReady(object client.Object) bool {
	q, _ := object.(*v1alpha1.Queue)
	return q != nil && meta.IsStatusConditionTrue(q.Status.Conditions, v1alpha1.ConditionReady)
}

// queueIndex is the cache's index of WorkerPools by the names of their Queues.
const queueIndex = "spec.queues.name"

func queueNames(object client.Object) []string {
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

// ofQueue are the pools that take messages from a Queue. Were it all of the namespace, a
// thousand Queues that come with a start would have each of a thousand pools looked at
// again and again.
func (r *Reconciler) ofQueue(ctx context.Context, object client.Object) []reconcile.Request {
	return kube.RequestsForList(ctx, r.client, &v1alpha1.WorkerPoolList{}, client.InNamespace(object.GetNamespace()), client.MatchingFields{queueIndex: object.GetName()})
}
