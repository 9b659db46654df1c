package controller

import (
	"context"
	"errors"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kube"
)

// removalRetry is the time until objects are read again that have changed since they were cached.
const removalRetry = 100 * time.Millisecond

type deletedSession struct {
	namespace string
	uid       types.UID
}

// remover ends the Pods of deleted sessions without the garbage collector, which by default deletes 20 objects a second in the
// whole cluster, and a Pod only after all that was queued before its Job was gone. The garbage collector deletes all other objects, and
// without an operator also the Pods.
type remover struct {
	client   client.Client
	children client.Reader
}

func (r *remover) setup(mgr ctrl.Manager, concurrency int) error {
	onDelete := handler.TypedFuncs[client.Object, deletedSession]{
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[client.Object], queue workqueue.TypedRateLimitingInterface[deletedSession]) {
			queue.Add(deletedSession{e.Object.GetNamespace(), e.Object.GetUID()})
		},
	}
	return builder.TypedControllerManagedBy[deletedSession](mgr).
		Named("agenticsession-removal").
		WatchesRawSource(source.TypedKind[client.Object](mgr.GetCache(), &v1alpha1.AgenticSession{}, onDelete)).
		WithOptions(controller.TypedOptions[deletedSession]{MaxConcurrentReconciles: concurrency}).
		Complete(reconcile.TypedFunc[deletedSession](r.remove))
}

// remove deletes the Jobs of a deleted session and their Pods. It deletes a Job only in the version in which it belongs to the session:
// a deletion with --cascade=orphan removes owners.
func (r *remover) remove(ctx context.Context, deleted deletedSession) (ctrl.Result, error) {
	ofSession := []client.ListOption{client.InNamespace(deleted.namespace), client.MatchingFields{uidIndex: string(deleted.uid)}}
	jobs, pods := &batchv1.JobList{}, &corev1.PodList{}
	if err := errors.Join(r.children.List(ctx, jobs, ofSession...), r.children.List(ctx, pods, ofSession...)); err != nil {
		return ctrl.Result{}, err
	}
	var errs []error
	kept := map[types.UID]bool{}
	for i := range jobs.Items {
		job := &jobs.Items[i]
		kept[job.UID] = true
		if metav1.IsControlledBy(job, &metav1.ObjectMeta{UID: deleted.uid}) {
			err := kube.DeleteVersion(ctx, r.client, job, metav1.DeletePropagationBackground)
			kept[job.UID], errs = err != nil, append(errs, err)
		}
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if job := metav1.GetControllerOf(pod); job == nil || kept[job.UID] || pod.DeletionTimestamp != nil {
			continue
		}
		err := r.client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID})
		errs = append(errs, client.IgnoreNotFound(err))
	}
	err := errors.Join(errs...)
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: removalRetry}, nil
	}
	return ctrl.Result{}, err
}
