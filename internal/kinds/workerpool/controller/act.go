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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool"
	"github.com/yardmaster/yardmaster/internal/kube"
)

// lowestDeletionCost makes a ReplicaSet remove a Pod before other Pods that are as ready.
const lowestDeletionCost = "-2147483647"

// Act implements kube.Kind. A refusal that differs from the previous pass's needs another decision.
func (r *Reconciler) Act(ctx context.Context, wp *v1alpha1.WorkerPool, observed *Observed, d *workerpool.Decision) (bool, error) {
	refusal, err := r.act(ctx, wp, observed, d)
	if err != nil || ptr.Equal(observed.Refusal, refusal) {
		return false, err
	}
	observed.Pool, observed.Memory, observed.Refusal = wp.DeepCopy(), d.Memory, refusal
	return true, nil
}

// act stops at the first refusal, and returns it.
func (r *Reconciler) act(ctx context.Context, wp *v1alpha1.WorkerPool, observed *Observed, d *workerpool.Decision) (*decision.Refusal, error) {
	if d.KeepFinalizer {
		if err := r.writeCache.SetFinalizer(ctx, r.Client, wp, v1alpha1.WorkerPoolFinalizer, true); err != nil {
			return nil, err
		}
	}
	if err := r.writeDrainStates(ctx, observed, d.DrainStates); err != nil {
		return nil, err
	}
	if refusal, err := r.applySharedObjects(ctx, wp, observed, d); refusal != nil || err != nil {
		return refusal, err
	}
	if d.CurrentWorkload != nil && observed.workloads[d.CurrentWorkload.GetName()] != nil {
		if refusal, err := r.restoreWorkload(ctx, wp, d.CurrentWorkload, observed.workloads[d.CurrentWorkload.GetName()]); refusal != nil || err != nil {
			return refusal, err
		}
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
	return nil, r.writeCache.SetFinalizer(ctx, r.Client, wp, v1alpha1.WorkerPoolFinalizer, false)
}

// ignoreTerminating drops the error with which kube.AsRefusal reports a terminating namespace, so that a deleted pool
// is drained even if objects are missing.
func ignoreTerminating(err error) error {
	if errors.Is(err, kube.ErrStale) {
		return nil
	}
	return err
}

const maxConcurrentPatches = 8

// writeDrainStates writes drain states on Pods. A conflict on a Pod does not affect other Pods.
func (r *Reconciler) writeDrainStates(ctx context.Context, observed *Observed, states []workerpool.DrainState) error {
	var group errgroup.Group
	group.SetLimit(maxConcurrentPatches)
	for _, state := range states {
		group.Go(func() error {
			before := observed.pods[state.Worker]
			after := before.DeepCopy()
			for annotation, at := range map[string]time.Time{
				workerpool.AnnotationDraining: state.DrainingSince, workerpool.AnnotationIdle: state.IdleSince,
				workerpool.AnnotationRemovable: state.RemovableSince,
			} {
				delete(after.Annotations, annotation)
				if !at.IsZero() {
					metav1.SetMetaDataAnnotation(&after.ObjectMeta, annotation, at.UTC().Format(time.RFC3339))
				}
			}
			if state.Unprotect {
				unprotect(after)
			}
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

// endWorkers deletes the Pods of finished workers with a short grace period. A kubelet does not shorten the grace period of a Pod that is
// terminating, so the operator deletes the Pods before the workload controller can, all at the same time. A refusal, or a missing permission,
// is only logged: the workload controller deletes the Pods, which end later.
func (r *Reconciler) endWorkers(ctx context.Context, observed *Observed, names []string) error {
	var group errgroup.Group
	group.SetLimit(maxConcurrentPatches)
	for _, name := range names {
		group.Go(func() error {
			pod := observed.pods[name]
			err := r.Client.Delete(ctx, pod, client.GracePeriodSeconds(int64(workerpool.EndGrace.Seconds())), client.Preconditions{UID: new(pod.UID)})
			isRefused := decision.AsRefusal(err, decision.Refusal{Kind: "Pod", Name: name}) != nil || decision.ClassOf(err) == decision.PermissionMissing
			switch {
			case isRefused:
				ctrl.LoggerFrom(ctx).Info("The API server refused to delete a finished worker, which may take longer to end", "pod", name, "error", err.Error())
			case client.IgnoreNotFound(err) != nil:
				return fmt.Errorf("ending the Pod %s: %w", name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// resizeRevision creates a revision, or sets its number of workers. It returns kube.ErrStale instead of stopping a worker that is not removable.
func (r *Reconciler) resizeRevision(ctx context.Context, wp *v1alpha1.WorkerPool, observed *Observed, size *workerpool.RevisionSize) (*decision.Refusal, error) {
	if size.NewWorkload != nil {
		return r.createRevision(ctx, wp, size)
	}
	before := observed.workloads[size.Name]
	if size.Replicas < ptr.Deref(*replicasField(before), 1) {
		if err := r.assertRemovable(ctx, wp, observed, before, size); err != nil {
			return nil, err
		}
	}
	resize := func(workload client.Object, options ...client.PatchOption) (*decision.Refusal, error) {
		after := workload.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy has the type of its original
		*replicasField(after) = &size.Replicas
		annotateHistory(after, size.History)
		err := r.Client.Patch(ctx, after, client.MergeFromWithOptions(workload, client.MergeFromWithOptimisticLock{}), options...)
		return kube.AsRefusal(err, decision.Refusal{Kind: after.GetObjectKind().GroupVersionKind().Kind, Name: size.Name})
	}
	if len(size.Finished) == 0 {
		refusal, err := resize(before)
		return refusal, ignoreTerminating(err)
	}
	// Pods end before the replicas are reduced: the workload controller would delete them first, with their whole grace period. Until then,
	// a ReplicaSet replaces them. So the reduction is tried before, and repeated at once if the workload changed meanwhile.
	if refusal, err := resize(before, client.DryRunAll); refusal != nil || err != nil {
		return refusal, ignoreTerminating(err)
	}
	if err := r.endWorkers(ctx, observed, size.Finished); err != nil {
		return nil, err
	}
	refusal, err := resize(before)
	for attempt := 1; apierrors.IsConflict(err) && attempt < maxResizeAttempts; attempt++ {
		current := before.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy has the type of its original
		if err := r.Live.Get(ctx, client.ObjectKeyFromObject(before), current); err != nil {
			return nil, ignoreTerminating(err)
		}
		if current.GetUID() != before.GetUID() || !ptr.Equal(*replicasField(current), *replicasField(before)) {
			return nil, kube.ErrStale
		}
		refusal, err = resize(current)
	}
	return refusal, ignoreTerminating(err)
}

// maxResizeAttempts is how often the reduction of a workload is tried whose Pods are deleted: its status changes with each of them.
const maxResizeAttempts = 10

// assertRemovable returns kube.ErrStale if the reduction of a workload would stop a worker that is not removable. The cache may be stale, so
// the workers come from the API server.
func (r *Reconciler) assertRemovable(ctx context.Context, wp *v1alpha1.WorkerPool, observed *Observed, workload client.Object, size *workerpool.RevisionSize) error {
	selector := workerpool.WorkerSelector(wp.Name)
	selector[workerpool.LabelRevision] = revisionHash(workload)
	var pods corev1.PodList
	if err := r.Live.List(ctx, &pods, client.InNamespace(wp.Namespace), client.MatchingLabels(selector)); err != nil {
		return fmt.Errorf("listing the Pods of %s: %w", size.Name, err)
	}
	current := &Observed{workloads: observed.workloads, pods: map[string]*corev1.Pod{}}
	if size.WouldInterrupt(current.addPods(pods.Items)) {
		return kube.ErrStale
	}
	return nil
}

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

func (r *Reconciler) createRevision(ctx context.Context, wp *v1alpha1.WorkerPool, size *workerpool.RevisionSize) (*decision.Refusal, error) {
	workload := size.NewWorkload.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy has the type of its original
	*replicasField(workload) = &size.Replicas
	annotateHistory(workload, size.History)
	isNew, refusal, err := r.CreateOwned(ctx, workload, wp, "WorkerPool", decision.Refusal{Kind: size.NewWorkload.GetObjectKind().GroupVersionKind().Kind, Name: size.Name})
	if isNew || refusal != nil || err != nil {
		return refusal, ignoreTerminating(err)
	}
	// The cache is stale, or an earlier request succeeded without a response.
	// Without its labels, the workload is not in the cache.
	if refusal, err := r.restoreWorkload(ctx, wp, size.NewWorkload, workload); refusal != nil || err != nil {
		return refusal, err
	}
	return nil, kube.ErrStale
}

const fieldOwner = client.FieldOwner("yardmaster")

// applySharedObjects applies the objects that all revisions use, unless they are unchanged since this process applied
// them. A pool without workers needs none.
func (r *Reconciler) applySharedObjects(ctx context.Context, wp *v1alpha1.WorkerPool, observed *Observed, d *workerpool.Decision) (*decision.Refusal, error) {
	if d.Status.Desired == 0 && len(observed.Workers) == 0 {
		return nil, nil //nolint:nilnil // no refusal
	}
	for _, object := range d.SharedObjects {
		desired, err := kube.ApplyConfiguration(object)
		if err != nil {
			return nil, err
		}
		found, err := kube.ReadMetadata(ctx, r.Client, desired.GroupVersionKind(), desired.GetNamespace(), desired.GetName())
		if err != nil {
			return nil, err
		}
		if found != nil && r.isUnchanged(wp, desired, found) {
			continue
		}
		if refusal, err := r.applyObject(ctx, wp, desired, found); refusal != nil || err != nil {
			return refusal, err
		}
	}
	return nil, nil //nolint:nilnil // no refusal
}

// restoreWorkload restores a workload that has drifted, except for its replicas and history, which resizeRevision patches.
func (r *Reconciler) restoreWorkload(ctx context.Context, wp *v1alpha1.WorkerPool, workload, found decision.Object) (*decision.Refusal, error) {
	if !workerpool.HasDrifted(workload, found) {
		return nil, nil //nolint:nilnil // no refusal
	}
	desired, err := kube.ApplyConfiguration(workload)
	if err != nil {
		return nil, err
	}
	unstructured.RemoveNestedField(desired.Object, "spec", "replicas")
	// Without this check, a change by the API server or a webhook would be reverted repeatedly.
	if r.isUnchanged(wp, desired, found) {
		return nil, nil //nolint:nilnil // no refusal
	}
	return r.applyObject(ctx, wp, desired, nil)
}

// applyObject applies an object and remembers the result. If it was not found in the cache, which contains only objects
// with a pool's label, it is read from the API server.
func (r *Reconciler) applyObject(
	ctx context.Context, wp *v1alpha1.WorkerPool, desired *unstructured.Unstructured, found *metav1.PartialObjectMetadata,
) (*decision.Refusal, error) {
	if found == nil {
		var err error
		if found, err = kube.ReadMetadata(ctx, r.Live, desired.GroupVersionKind(), desired.GetNamespace(), desired.GetName()); err != nil {
			return nil, err
		}
	}
	hash, kind := workerpool.HashJSON(desired.Object), desired.GetKind()
	isOwn := func(object metav1.Object) bool { return metav1.IsControlledBy(object, wp) }
	refusal, err := r.ApplyOwned(ctx, desired, found, isOwn, "WorkerPool", fieldOwner)
	if refusal != nil || err != nil {
		return refusal, ignoreTerminating(err)
	}
	r.memory.Update(wp, func(memory *poolMemory) {
		if memory.applied == nil {
			memory.applied = map[string]appliedObject{}
		}
		memory.applied[kind] = appliedObject{hash, desired.GetResourceVersion(), contentVersion(desired)}
	})
	return nil, nil //nolint:nilnil // no refusal
}

type appliedObject struct {
	// hash of the apply configuration.
	hash string
	// resourceVersion and contentVersion of the result.
	resourceVersion, contentVersion string
}

// isUnchanged reports whether an object is still the result of applying the same configuration. An older object in the
// cache counts as unchanged.
func (r *Reconciler) isUnchanged(wp *v1alpha1.WorkerPool, desired *unstructured.Unstructured, found metav1.Object) bool {
	memory, _ := r.memory.Get(wp)
	last := memory.applied[desired.GetKind()]
	if last.hash != workerpool.HashJSON(desired.Object) {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(found.GetResourceVersion(), last.resourceVersion)
	return last.contentVersion == contentVersion(found) || err == nil && order < 0
}

// contentVersion changes when any client edits the object, but, if the kind has generations, not when a controller
// writes the status.
func contentVersion(object metav1.Object) string {
	if object.GetGeneration() == 0 {
		return object.GetResourceVersion()
	}
	return workerpool.HashJSON([]any{object.GetUID(), object.GetGeneration(), object.GetLabels(), object.GetOwnerReferences()})
}

// unprotect removes the annotations that protect a Pod from the removal of its node.
func unprotect(pod *corev1.Pod) {
	delete(pod.Annotations, workerpool.AnnotationSafeToEvict)
	delete(pod.Annotations, workerpool.AnnotationDoNotDisrupt)
}

// protectionRefusalInterval is the time until protections are written again after a refusal.
const protectionRefusalInterval = time.Minute

// writeProtections writes protections on Pods. A refusal, for example by an admission policy for annotations of other
// projects, is only logged, so that it does not delay other actions.
func (r *Reconciler) writeProtections(ctx context.Context, wp *v1alpha1.WorkerPool, observed *Observed, changes []workerpool.ProtectionChange) error {
	if memory, _ := r.memory.Get(wp); observed.Now.Before(memory.protectionRetry) {
		return nil
	}
	var group errgroup.Group
	group.SetLimit(maxConcurrentPatches)
	for _, change := range changes {
		group.Go(func() error {
			before := observed.pods[change.Worker]
			after := before.DeepCopy()
			metav1.SetMetaDataAnnotation(&after.ObjectMeta, workerpool.AnnotationProtection, change.Time.UTC().Format(time.RFC3339Nano))
			unprotect(after)
			if change.Active {
				metav1.SetMetaDataAnnotation(&after.ObjectMeta, workerpool.AnnotationSafeToEvict, "false")
				metav1.SetMetaDataAnnotation(&after.ObjectMeta, workerpool.AnnotationDoNotDisrupt, "true")
			}
			err := r.Client.Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
			if client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("writing the protection of Pod %s: %w", change.Worker, err)
			}
			return nil
		})
	}
	err := group.Wait()
	refusal := decision.AsRefusal(err, decision.Refusal{Kind: "Pod"})
	if refusal == nil {
		return err
	}
	ctrl.LoggerFrom(ctx).Info("The API server refused the annotations that protect busy Pods from the removal of their node", "error", err.Error())
	r.memory.Update(wp, func(memory *poolMemory) { memory.protectionRetry = observed.Now.Add(protectionRefusalInterval) })
	return nil
}
