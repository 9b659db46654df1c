package workerpool

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/apierror"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/internal/pool"
)

// fieldOwner of what is applied.
const fieldOwner = client.FieldOwner("yardmaster")

// apply brings the objects about that all revisions share, where they are not as this
// process last applied them. A pool without workers needs none.
func (r *Reconciler) apply(ctx context.Context, wp *v1alpha1.WorkerPool, seen *sight, plan *pool.Decision) error {
	if plan.Status.Desired == 0 && len(seen.in.Workers) == 0 {
		return nil
	}
	for _, object := range plan.SharedObjects {
		u, err := configurationOf(object)
		if err != nil {
			return err
		}
		found, err := r.found(ctx, u)
		if err != nil {
			return err
		}
		if r.known.applied(wp, u.GetKind()).stands(pool.HashJSON(u.Object), found) {
			continue
		}
		if err := r.applyOne(ctx, wp, u, found); err != nil {
			return err
		}
	}
	return nil
}

// keep puts the revision of the spec right, if somebody has changed it. Its replicas and
// its past are patched elsewhere, so that is left out here.
func (r *Reconciler) keep(ctx context.Context, wp *v1alpha1.WorkerPool, seen *sight, plan *pool.Decision) error {
	if plan.CurrentWorkload == nil {
		return nil
	}
	found, there := seen.workloads[plan.CurrentWorkload.GetName()].(pool.Object)
	if !there || !pool.HasDrifted(plan.CurrentWorkload, found) {
		return nil
	}
	u, err := configurationOf(plan.CurrentWorkload)
	if err != nil {
		return err
	}
	// What the API server, or a webhook, makes something else of is not applied for ever.
	if r.known.applied(wp, u.GetKind()).stands(pool.HashJSON(u.Object), found) {
		return nil
	}
	return r.applyOne(ctx, wp, u, found)
}

// configurationOf an object is what is applied.
func configurationOf(object pool.Object) (*unstructured.Unstructured, error) {
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, fmt.Errorf("writing %s: %w", object.GetName(), err)
	}
	for _, path := range [][]string{
		{"metadata", "creationTimestamp"}, {"status"}, {"spec", "replicas"}, {"spec", "template", "metadata", "creationTimestamp"},
	} {
		unstructured.RemoveNestedField(raw, path...)
	}
	return &unstructured.Unstructured{Object: raw}, nil
}

// found is what the cache has of the object; nil if that is nothing.
func (r *Reconciler) found(ctx context.Context, object client.Object) (metav1.Object, error) {
	there := &metav1.PartialObjectMetadata{}
	there.SetGroupVersionKind(object.GetObjectKind().GroupVersionKind())
	err := r.client.Get(ctx, client.ObjectKeyFromObject(object), there)
	if isNone(err) {
		return nil, nil //nolint:nilnil // there is none
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s %s: %w", there.Kind, object.GetName(), err)
	}
	return there, nil
}

// applyOne applies an object, unless one of its name is somebody else's, and remembers
// what came of it.
func (r *Reconciler) applyOne(ctx context.Context, wp *v1alpha1.WorkerPool, object *unstructured.Unstructured, found metav1.Object) error {
	hash, kind := pool.HashJSON(object.Object), object.GetKind()
	if err := r.assertOwned(ctx, wp, object, found); err != nil {
		return err
	}
	err := r.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), fieldOwner, client.ForceOwnership)
	if isNone(err) && isPodMonitor(object) {
		r.podMonitors.Store(false) // the kind has gone, and may come back
		return nil
	}
	if err != nil {
		return refusedOr(err, "applying", kind+" "+object.GetName())
	}
	r.known.apply(wp, kind, applied{hash, object.GetResourceVersion(), stateOf(object)})
	return nil
}

// assertOwned returns an error if an object of that name is somebody else's. The cache has
// only those with a pool's label, so what it does not have is looked for, live.
func (r *Reconciler) assertOwned(ctx context.Context, wp *v1alpha1.WorkerPool, object client.Object, found metav1.Object) error {
	if found == nil {
		there := &metav1.PartialObjectMetadata{}
		there.SetGroupVersionKind(object.GetObjectKind().GroupVersionKind())
		err := r.live.Get(ctx, client.ObjectKeyFromObject(object), there)
		if isNone(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading %s %s: %w", there.Kind, object.GetName(), err)
		}
		found = there
	}
	if !pool.IsControllerOf(wp, found) {
		return nameTaken(object)
	}
	return nil
}

// applied is an object as it was last applied.
type applied struct {
	// hash of what was asked for.
	hash string
	// version and state of what came of it.
	version, state string
}

// stands tells whether the object still is what came of the same wish. One that the cache
// has yet to catch up with is.
func (a applied) stands(hash string, found metav1.Object) bool {
	if found == nil || a.hash != hash {
		return false
	}
	if a.state == stateOf(found) {
		return true
	}
	order, err := resourceversion.CompareResourceVersion(found.GetResourceVersion(), a.version)
	return err == nil && order < 0
}

// stateOf an object is another when somebody has changed what was applied. Where the API
// server counts changes of the spec, what controllers write into the status is none.
func stateOf(object metav1.Object) string {
	if object.GetGeneration() == 0 {
		return object.GetResourceVersion()
	}
	return pool.HashJSON([]any{object.GetUID(), object.GetGeneration(), object.GetLabels(), object.GetOwnerReferences()})
}

// refusedError is an object that the API server does not take.
type refusedError struct{ message string }

func (e *refusedError) Error() string { return e.message }

func nameTaken(object client.Object) error {
	return &refusedError{fmt.Sprintf("%s %s exists and is not this WorkerPool's; delete or rename it",
		object.GetObjectKind().GroupVersionKind().Kind, object.GetName())}
}

// refusedOr sorts an error of writing an object: a refusal is for the user to see, staleness
// for the next pass, all else an error to try again after.
func refusedOr(err error, doing, name string) error {
	switch {
	case err == nil:
		return nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return fmt.Errorf("%s %s: %w", doing, name, err) // the pool is going with it
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), isDenied(err):
		return &refusedError{fmt.Sprintf("%s %s: %s", doing, name, strings.TrimSpace(err.Error()))}
	case apierror.ClassOf(err) == apierror.Conflict, apierror.ClassOf(err) == apierror.NotFound:
		return kube.ErrStale
	default:
		return fmt.Errorf("%s %s: %w", doing, name, err)
	}
}

// isDenied tells a policy's or a quota's refusal from a missing permission.
func isDenied(err error) bool {
	text := err.Error()
	return strings.Contains(text, "admission webhook") && strings.Contains(text, "denied the request") ||
		apierrors.IsForbidden(err) && (strings.Contains(text, "ValidatingAdmissionPolicy") || strings.Contains(text, "quota"))
}
