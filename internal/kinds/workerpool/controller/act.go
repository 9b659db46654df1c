package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool"
	"github.com/yardmaster/yardmaster/internal/kube"
)

// lowestDeletionCost makes a ReplicaSet remove a Pod before all others that are as ready.
const lowestDeletionCost = "-2147483647"

// act executes a decision whose status is recorded. It stops at the first object that the API
// server refuses, and returns the refusal.
func (r *Reconciler) act(ctx context.Context, wp *v1alpha1.WorkerPool, observed *observation, d *workerpool.Decision) (*decision.Refusal, error) {
	if d.KeepFinalizer {
		if err := r.patchFinalizer(ctx, wp, controllerutil.AddFinalizer); err != nil {
			return nil, err
		}
	}
	if err := r.writeDrainStates(ctx, observed, d.DrainStates); err != nil {
		return nil, err
	}
	if refusal, err := r.applySharedObjects(ctx, wp, observed, d); refusal != nil || err != nil {
		return refusal, err
	}
	if refusal, err := r.restoreWorkload(ctx, wp, observed, d); refusal != nil || err != nil {
		return refusal, err
	}
	for i := range d.Resizes {
		if refusal, err := r.resizeRevision(ctx, wp, observed, &d.Resizes[i]); refusal != nil || err != nil {
			return refusal, err
		}
	}
	for _, name := range d.DeleteRevisions {
		if err := kube.DeleteVersion(ctx, r.Client, observed.workloads[name], metav1.DeletePropagationBackground); err != nil {
			return nil, err
		}
	}
	if d.KeepFinalizer {
		return nil, r.writeProtections(ctx, wp, observed, d.Protections)
	}
	return nil, r.patchFinalizer(ctx, wp, controllerutil.RemoveFinalizer)
}

func (r *Reconciler) patchFinalizer(ctx context.Context, wp *v1alpha1.WorkerPool, change func(client.Object, string) bool) error {
	version := wp.ResourceVersion
	if err := kube.PatchMetadata(ctx, r.Client, wp, func(o client.Object) { change(o, v1alpha1.WorkerPoolFinalizer) }); err != nil {
		return fmt.Errorf("patching the finalizer: %w", err)
	}
	if wp.ResourceVersion != version && controllerutil.ContainsFinalizer(wp, v1alpha1.WorkerPoolFinalizer) {
		r.writeCache.Record(wp)
	}
	return nil
}

// refusalOf returns the refusal of an object, as kube.AsRefusal does. In a terminating namespace there
// is neither a refusal nor an error, so that a deleted pool is drained although objects are missing.
func refusalOf(err error, object client.Object) (*decision.Refusal, error) {
	refusal, err := kube.AsRefusal(err, refusedObject(object))
	if errors.Is(err, kube.ErrStale) {
		return nil, nil //nolint:nilnil // no refusal
	}
	return refusal, err
}

func refusedObject(object client.Object) decision.Refusal {
	return decision.Refusal{Kind: object.GetObjectKind().GroupVersionKind().Kind, Name: object.GetName()}
}

// maxConcurrentPatches is the number of Pods that are patched at the same time.
const maxConcurrentPatches = 8

// writeDrainStates writes drain states on Pods. If a Pod has changed in the meantime, the others
// are written nevertheless.
func (r *Reconciler) writeDrainStates(ctx context.Context, observed *observation, states []workerpool.DrainState) error {
	var group errgroup.Group
	group.SetLimit(maxConcurrentPatches)
	for _, state := range states {
		group.Go(func() error {
			before := observed.pods[state.Worker]
			after := before.DeepCopy()
			annotateTime(after, workerpool.AnnotationDraining, state.DrainingSince)
			annotateTime(after, workerpool.AnnotationIdle, state.IdleSince)
			annotateTime(after, workerpool.AnnotationRemovable, state.RemovableSince)
			if !state.RemovableSince.IsZero() {
				metav1.SetMetaDataAnnotation(&after.ObjectMeta, corev1.PodDeletionCost, lowestDeletionCost)
			}
			err := r.Client.Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
			if err != nil {
				return fmt.Errorf("writing the drain state of Pod %s: %w", state.Worker, err)
			}
			return nil
		})
	}
	return group.Wait()
}

func annotateTime(pod *corev1.Pod, annotation string, at time.Time) {
	if at.IsZero() {
		delete(pod.Annotations, annotation)
		return
	}
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, annotation, at.UTC().Format(time.RFC3339))
}

// resizeRevision creates a revision, or sets its replicas.
func (r *Reconciler) resizeRevision(ctx context.Context, wp *v1alpha1.WorkerPool, observed *observation, size *workerpool.RevisionSize) (*decision.Refusal, error) {
	if size.NewWorkload != nil {
		return r.createRevision(ctx, wp, size)
	}
	before := observed.workloads[size.Name]
	after := before.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy has the type of its original
	replicas := replicasField(after)
	if size.Replicas < ptr.Deref(*replicas, 1) {
		if err := r.assertNoInterruption(ctx, observed, size); err != nil {
			return nil, err
		}
	}
	*replicas = &size.Replicas
	annotateHistory(after, size.History)
	return refusalOf(r.Client.Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})), after)
}

// replicasField returns a pointer to the field spec.replicas of a workload.
func replicasField(workload client.Object) **int32 {
	switch w := workload.(type) {
	case *appsv1.Deployment:
		return &w.Spec.Replicas
	case *appsv1.StatefulSet:
		return &w.Spec.Replicas
	}
	return new(*int32)
}

func annotateHistory(workload client.Object, history workerpool.History) {
	annotations := workload.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	if text := history.String(); text != "" {
		annotations[workerpool.AnnotationRolloutHistory] = text
	} else {
		delete(annotations, workerpool.AnnotationRolloutHistory)
	}
	workload.SetAnnotations(annotations)
}

// assertNoInterruption lists the workers of a revision from the API server. It returns
// kube.ErrStale if the new size might remove another worker than those that have finished.
func (r *Reconciler) assertNoInterruption(ctx context.Context, observed *observation, size *workerpool.RevisionSize) error {
	workload := observed.workloads[size.Name]
	selector := workerpool.WorkerSelector(observed.Pool.Name)
	selector[workerpool.LabelRevision] = revisionHash(workload)
	var pods corev1.PodList
	if err := r.Live.List(ctx, &pods, client.InNamespace(workload.GetNamespace()), client.MatchingLabels(selector)); err != nil {
		return fmt.Errorf("listing the Pods of %s: %w", size.Name, err)
	}
	current := &observation{workloads: observed.workloads, pods: map[string]*corev1.Pod{}}
	if size.WouldInterrupt(current.addPods(pods.Items)) {
		return kube.ErrStale
	}
	return nil
}

func (r *Reconciler) createRevision(ctx context.Context, wp *v1alpha1.WorkerPool, size *workerpool.RevisionSize) (*decision.Refusal, error) {
	workload := size.NewWorkload.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy has the type of its original
	*replicasField(workload) = &size.Replicas
	annotateHistory(workload, size.History)
	err := r.Client.Create(ctx, workload)
	if !apierrors.IsAlreadyExists(err) {
		return refusalOf(err, size.NewWorkload)
	}
	// The pool may own it: the cache is outdated, or an earlier request succeeded without an
	// answer.
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(workload), workload); err != nil {
		return nil, fmt.Errorf("reading %s: %w", size.Name, err)
	}
	if !metav1.IsControlledBy(workload, wp) {
		return decision.NameTaken(refusedObject(size.NewWorkload), "WorkerPool"), nil
	}
	if workerpool.HasDrifted(size.NewWorkload, workload) { // without its labels it is not in the cache
		desired, err := applyConfigurationOf(size.NewWorkload)
		if err != nil {
			return nil, err
		}
		if refusal, err := r.applyObject(ctx, wp, desired, workload); refusal != nil || err != nil {
			return refusal, err
		}
	}
	return nil, kube.ErrStale
}
