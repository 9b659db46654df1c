package controller

import (
	"context"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
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
	"github.com/yardmaster/yardmaster/internal/kinds/sequentialjob"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/internal/kube/metric"
)

const controllerIndex = ".metadata.controller.uid"

// policyViolatedIndex has the value policyViolated for each SequentialJob that a Policy blocks.
const (
	policyViolatedIndex = ".status.policyViolated"
	policyViolated      = "true"
)

// changedJobPriority is the priority of a SequentialJob with a changed Job; other requests have 0.
const changedJobPriority = 1

// SetupWithManager registers the reconciler with the manager.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	if err := r.writeCache.Follow(context.Background(), mgr.GetCache(), &v1alpha1.SequentialJob{}); err != nil {
		return err
	}
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &batchv1.Job{}, controllerIndex, controllerUID); err != nil {
		return fmt.Errorf("indexing Jobs by controller: %w", err)
	}
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &v1alpha1.SequentialJob{}, policyViolatedIndex, policyViolation); err != nil {
		return fmt.Errorf("indexing SequentialJobs by what blocks them: %w", err)
	}
	if err := metric.Register(metric.NewSumCollector(mgr.GetCache(), &v1alpha1.SequentialJobList{}, countActive, activeGauge)); err != nil {
		return err
	}
	// Other SequentialJobs observe Policies when they start their next step.
	blockedByPolicies := func(ctx context.Context, namespace string) []reconcile.Request {
		return kube.RequestsForList(ctx, r.Client, &v1alpha1.SequentialJobList{},
			client.InNamespace(namespace), client.MatchingFields{policyViolatedIndex: policyViolated})
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("sequentialjob").
		For(&v1alpha1.SequentialJob{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, approvalChanged))).
		Watches(&batchv1.Job{}, r.jobHandler()).
		Watches(&v1alpha1.Policy{}, kube.NewNamespaceHandler(r.policies.Invalidate, blockedByPolicies), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.Kind[client.Object](r.options.Pods, &corev1.Pod{}, r.podHandler())).
		WithOptions(kube.ControllerOptions(r.options.Concurrency)).
		Complete(kube.RequeueOnConflict(&kube.Loop[*v1alpha1.SequentialJob, sequentialjob.Observation, sequentialjob.Decision]{
			Clients: r.Clients, Kind: r, Written: r.writeCache, New: func() *v1alpha1.SequentialJob { return &v1alpha1.SequentialJob{} },
			Finalizer: v1alpha1.SequentialJobFinalizer, NeedsFresh: (*sequentialjob.Decision).HasActions,
			IsNew: func(sj *v1alpha1.SequentialJob) bool { return kube.NeverObserved(sj.Status.ObservedGeneration) },
		}))
}

// TrimSequentialJob is a cache transform.
var TrimSequentialJob = kube.TrimLarge(func(sj *v1alpha1.SequentialJob) {
	sj.Spec = v1alpha1.SequentialJobSpec{ManagedBy: sj.Spec.ManagedBy}
	sj.Status.Steps = nil
})

// approvalChanged matches updates that approve a step. Annotations do not change the generation.
var approvalChanged = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false }, DeleteFunc: func(event.DeleteEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		approval := func(object client.Object) [2]string {
			annotations := object.GetAnnotations()
			return [2]string{annotations[v1alpha1.AnnotationApproval], annotations[v1alpha1.AnnotationApprovedBy]}
		}
		return approval(e.ObjectOld) != approval(e.ObjectNew)
	},
}

func policyViolation(object client.Object) []string {
	sj, ok := object.(*v1alpha1.SequentialJob)
	if !ok || !sequentialjob.IsBlockedByPolicy(&sj.Status) {
		return nil
	}
	return []string{policyViolated}
}

func controllerUID(object client.Object) []string {
	controller := metav1.GetControllerOf(object)
	if controller == nil {
		return nil
	}
	return []string{string(controller.UID)}
}

func (r *Reconciler) jobHandler() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			// This controller created the Job. If it has already ended, it ended while the operator did not watch.
			if job, isJob := e.Object.(*batchv1.Job); isJob && sequentialjob.IsTerminal(job) {
				enqueueOwner(job, queue, 0)
			}
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			before, isJob := e.ObjectOld.(*batchv1.Job)
			after, isJobToo := e.ObjectNew.(*batchv1.Job)
			if !isJob || !isJobToo || !sequentialjob.IsRelevantUpdate(before, after) {
				return
			}
			hasEnded := sequentialjob.IsTerminal(after) && !sequentialjob.IsTerminal(before)
			if owner := ownerOf(after); owner != nil && hasEnded && after.Labels[v1alpha1.LabelStep] != "" {
				r.stepEnds.Set(owner, r.Clock.Now())
			}
			enqueueOwner(after, queue, 0)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			if job, isJob := e.Object.(*batchv1.Job); isJob {
				r.createdJobs.markObserved(job)
				if owner := ownerOf(job); owner != nil && sequentialjob.IsTerminal(job) {
					r.endedJobs.Update(owner, func(ended *map[types.UID]*batchv1.Job) {
						if *ended == nil {
							*ended = map[types.UID]*batchv1.Job{}
						}
						(*ended)[job.UID] = job
					})
				}
				enqueueOwner(job, queue, 0)
			}
		},
	}
}

func enqueueOwner(job *batchv1.Job, queue workqueue.TypedRateLimitingInterface[reconcile.Request], after time.Duration) {
	owner := ownerOf(job)
	if owner == nil {
		return
	}
	// Running SequentialJobs take precedence over others.
	kube.AddWithPriority(queue, changedJobPriority, after, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(owner)})
}
