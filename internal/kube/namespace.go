package kube

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// NamespaceTerminating reports whether a namespace is being deleted or was deleted. Without permission to read the namespace,
// it returns false.
func NamespaceTerminating(ctx context.Context, live client.Reader, name string) (bool, error) {
	ns := &metav1.PartialObjectMetadata{}
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	err := live.Get(ctx, client.ObjectKey{Name: name}, ns)
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case apierrors.IsForbidden(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("reading the namespace %s: %w", name, err)
	}
	return !ns.DeletionTimestamp.IsZero(), nil
}

// RemoveFinalizerIfTerminating removes the finalizer of a deleted object if its reconciliation failed for a missing permission
// while its namespace is being deleted. A namespace's content is deleted in no particular order, so the operator's Role may
// disappear first. The operator can then do nothing in the namespace, and the objects that the finalizer protects are deleted
// too. It returns any other failure unchanged.
func RemoveFinalizerIfTerminating(ctx context.Context, live client.Reader, c client.Client, object client.Object, finalizer string, failure error) error {
	if object.GetDeletionTimestamp().IsZero() || !apierrors.IsForbidden(failure) {
		return failure
	}
	terminating, err := NamespaceTerminating(ctx, live, object.GetNamespace())
	if err != nil || !terminating {
		return errors.Join(failure, err)
	}
	ctrl.LoggerFrom(ctx).Info("Removing the finalizer, because the namespace is being deleted and the permissions are already gone", "failure", failure.Error())
	return PatchMetadata(ctx, c, object, func(o client.Object) { controllerutil.RemoveFinalizer(o, finalizer) })
}
