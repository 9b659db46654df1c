package sequentialjob

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/internal/sequence"
)

// controllerIndex finds Jobs by the UID of their controller.
const controllerIndex = ".metadata.controller.uid"

// underWay is the priority of a sequence one of whose Jobs has changed; others have 0.
const underWay = 1

// SetupWithManager has the manager run the reconciler, with this many passes at once.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, concurrency int) error {
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &batchv1.Job{}, controllerIndex, controllerUID); err != nil {
		return fmt.Errorf("indexing Jobs by controller: %w", err)
	}
	if err := metrics.Registry.Register(activeCollector{mgr.GetCache()}); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("sequentialjob").
		For(&v1alpha1.SequentialJob{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&batchv1.Job{}, r.jobHandler()).
		WithOptions(kube.ControllerOptions(concurrency)).
		Complete(kube.RequeueOnConflict(r))
}

func controllerUID(object client.Object) []string {
	controller := metav1.GetControllerOf(object)
	if controller == nil {
		return nil
	}
	return []string{string(controller.UID)}
}

// jobHandler wakes the SequentialJob whose Job has changed in a way that matters.
func (r *Reconciler) jobHandler() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			// New Jobs are this controller's own doing. One that is over already came
			// and ended while nobody watched.
			if job, isJob := e.Object.(*batchv1.Job); isJob && sequence.IsTerminal(job) {
				enqueueOwner(job, queue)
			}
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			before, isJob := e.ObjectOld.(*batchv1.Job)
			after, isJobToo := e.ObjectNew.(*batchv1.Job)
			if !isJob || !isJobToo || !sequence.Noteworthy(before, after) {
				return
			}
			if sequence.IsTerminal(after) && !sequence.IsTerminal(before) {
				r.noteEnd(after)
			}
			enqueueOwner(after, queue)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			enqueueOwner(e.Object, queue)
		},
	}
}

func (r *Reconciler) noteEnd(job *batchv1.Job) {
	if owner := metav1.GetControllerOf(job); owner != nil {
		r.transitions.stepEnded(owner.UID, r.clock.Now())
	}
}

func enqueueOwner(object client.Object, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	owner := metav1.GetControllerOf(object)
	if owner == nil || owner.Kind != "SequentialJob" || owner.APIVersion != v1alpha1.GroupVersion.String() {
		return
	}
	request := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: object.GetNamespace(), Name: owner.Name}}
	if prioritised, ok := queue.(priorityqueue.PriorityQueue[reconcile.Request]); ok {
		// Sequences under way go before those that are only about to begin.
		prioritised.AddWithOpts(priorityqueue.AddOpts{Priority: new(underWay)}, request)
		return
	}
	queue.Add(request)
}

// forget drops what is remembered of a SequentialJob that is gone.
func (r *Reconciler) forget(key types.NamespacedName) {
	r.writeCache.Forget(key)
	r.transitions.forget(r.created.forget(key))
}
