package workerpool

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/pool"
)

// fieldOwner of what is applied.
const fieldOwner = client.FieldOwner("yardmaster")

// apply brings the objects about that all revisions share, if they have changed since this
// process last did. A pool without workers needs none.
func (r *Reconciler) apply(ctx context.Context, wp *v1alpha1.WorkerPool, seen *sight, plan *pool.Plan) error {
	if plan.Status.Desired == 0 && len(seen.in.Workers) == 0 {
		return nil
	}
	for _, object := range plan.Apply {
		raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return fmt.Errorf("writing %s: %w", object.GetName(), err)
		}
		u := &unstructured.Unstructured{Object: raw}
		unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
		unstructured.RemoveNestedField(u.Object, "status")
		hash := pool.HashOf(u.Object)
		if r.known.isApplied(wp, u.GetKind(), hash) {
			continue
		}
		if err := r.applyOne(ctx, wp, u); err != nil {
			return err
		}
		r.known.apply(wp, u.GetKind(), hash)
	}
	return nil
}

// applyOne applies an object, unless one of its name is somebody else's.
func (r *Reconciler) applyOne(ctx context.Context, wp *v1alpha1.WorkerPool, object *unstructured.Unstructured) error {
	there := &metav1.PartialObjectMetadata{}
	there.SetGroupVersionKind(object.GroupVersionKind())
	err := r.live.Get(ctx, client.ObjectKeyFromObject(object), there)
	switch {
	case err == nil && !pool.IsOwned(wp, there):
		return nameTaken(object)
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("reading %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	err = r.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), fieldOwner, client.ForceOwnership)
	return refusedOr(err, "applying", object.GetKind()+" "+object.GetName())
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
	case errors.Is(staleOr(err), errStale):
		return errStale
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
