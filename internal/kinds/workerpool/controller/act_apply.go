package controller

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool"
)

// fieldOwner is the field manager of applied objects.
const fieldOwner = client.FieldOwner("yardmaster")

// applySharedObjects applies the objects that all revisions use, unless they are unchanged
// since this process applied them. A pool without workers needs none.
func (r *Reconciler) applySharedObjects(ctx context.Context, wp *v1alpha1.WorkerPool, observed *observation, d *workerpool.Decision) (*decision.Refusal, error) {
	if d.Status.Desired == 0 && len(observed.Workers) == 0 {
		return nil, nil //nolint:nilnil // no refusal
	}
	for _, object := range d.SharedObjects {
		desired, err := applyConfigurationOf(object)
		if err != nil {
			return nil, err
		}
		found, err := findMetadata(ctx, r.Client, desired)
		if err != nil {
			return nil, err
		}
		if r.lastApplied(wp, desired.GetKind()).isUnchanged(workerpool.HashJSON(desired.Object), found) {
			continue
		}
		if refusal, err := r.applyObject(ctx, wp, desired, found); refusal != nil || err != nil {
			return refusal, err
		}
	}
	return nil, nil //nolint:nilnil // no refusal
}

// restoreWorkload restores the workload of the updated revision if someone changed it, except
// for its replicas and history, which are patched by resizeRevision.
func (r *Reconciler) restoreWorkload(ctx context.Context, wp *v1alpha1.WorkerPool, observed *observation, d *workerpool.Decision) (*decision.Refusal, error) {
	if d.CurrentWorkload == nil {
		return nil, nil //nolint:nilnil // no refusal
	}
	found, ok := observed.workloads[d.CurrentWorkload.GetName()].(decision.Object)
	if !ok || !workerpool.HasDrifted(d.CurrentWorkload, found) {
		return nil, nil //nolint:nilnil // no refusal
	}
	desired, err := applyConfigurationOf(d.CurrentWorkload)
	if err != nil {
		return nil, err
	}
	// Without this check, a change by the API server or a webhook would be reverted again and
	// again.
	if r.lastApplied(wp, desired.GetKind()).isUnchanged(workerpool.HashJSON(desired.Object), found) {
		return nil, nil //nolint:nilnil // no refusal
	}
	return r.applyObject(ctx, wp, desired, found)
}

// applyConfigurationOf returns the fields of an object that the operator applies.
func applyConfigurationOf(object decision.Object) (*unstructured.Unstructured, error) {
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, fmt.Errorf("converting %s: %w", object.GetName(), err)
	}
	for _, path := range [][]string{
		{"metadata", "creationTimestamp"}, {"status"}, {"spec", "replicas"}, {"spec", "template", "metadata", "creationTimestamp"},
	} {
		unstructured.RemoveNestedField(raw, path...)
	}
	return &unstructured.Unstructured{Object: raw}, nil
}

// findMetadata reads the metadata of an object; nil if the object or its kind does not exist.
func findMetadata(ctx context.Context, reader client.Reader, object client.Object) (metav1.Object, error) {
	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(object.GetObjectKind().GroupVersionKind())
	err := reader.Get(ctx, client.ObjectKeyFromObject(object), found)
	if isNotFoundOrNoKind(err) {
		return nil, nil //nolint:nilnil // it does not exist
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s %s: %w", found.Kind, object.GetName(), err)
	}
	return found, nil
}

func isNotFoundOrNoKind(err error) bool { return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) }

// applyObject applies an object and remembers the result. It refuses to change an object of
// another owner. The cache contains only objects with a pool's label, so others are read from
// the API server.
func (r *Reconciler) applyObject(ctx context.Context, wp *v1alpha1.WorkerPool, desired *unstructured.Unstructured, found metav1.Object) (*decision.Refusal, error) {
	if found == nil {
		var err error
		if found, err = findMetadata(ctx, r.Live, desired); err != nil {
			return nil, err
		}
	}
	if found != nil && !metav1.IsControlledBy(found, wp) {
		return decision.NameTaken(refusedObject(desired), "WorkerPool"), nil
	}
	hash, kind := workerpool.HashJSON(desired.Object), desired.GetKind()
	err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(desired), fieldOwner, client.ForceOwnership)
	if isNotFoundOrNoKind(err) && isPodMonitor(desired) {
		r.podMonitors.Store(false) // the CRD was deleted, and may be created again
		return nil, nil            //nolint:nilnil // no refusal
	}
	if err != nil {
		return refusalOf(err, desired)
	}
	r.memory.Update(wp, func(memory *poolMemory) {
		if memory.applied == nil {
			memory.applied = map[string]appliedObject{}
		}
		memory.applied[kind] = appliedObject{hash, desired.GetResourceVersion(), contentVersion(desired)}
	})
	return nil, nil //nolint:nilnil // no refusal
}

// appliedObject is an object as it was last applied.
type appliedObject struct {
	// hash of the apply configuration.
	hash string
	// resourceVersion and contentVersion of the result.
	resourceVersion, contentVersion string
}

func (r *Reconciler) lastApplied(wp *v1alpha1.WorkerPool, kind string) appliedObject {
	memory, _ := r.memory.Get(wp)
	return memory.applied[kind]
}

// isUnchanged reports whether the object is still the result of applying the same configuration.
// An object that is older in the cache counts as unchanged.
func (a appliedObject) isUnchanged(hash string, found metav1.Object) bool {
	if found == nil || a.hash != hash {
		return false
	}
	if a.contentVersion == contentVersion(found) {
		return true
	}
	order, err := resourceversion.CompareResourceVersion(found.GetResourceVersion(), a.resourceVersion)
	return err == nil && order < 0
}

// contentVersion changes when anyone edits the object. If the kind has generations, it does not
// change when a controller writes the status.
func contentVersion(object metav1.Object) string {
	if object.GetGeneration() == 0 {
		return object.GetResourceVersion()
	}
	return workerpool.HashJSON([]any{object.GetUID(), object.GetGeneration(), object.GetLabels(), object.GetOwnerReferences()})
}
