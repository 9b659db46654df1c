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

// NamespaceTerminating tells whether a namespace is being deleted. Who may not look at it cannot
// tell, and goes on as if it stayed.
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

// RemoveFinalizerIfTerminating takes the finalizer off a deleted object if what its pass has failed
// of is that its namespace goes, and the operator's permissions there have gone first: a
// namespace's content is deleted in no order. Nothing can be done there any more, and what
// the finalizer keeps is deleted with all else. Any other failure it returns.
func RemoveFinalizerIfTerminating(ctx context.Context, live client.Reader, c client.Client, object client.Object, finalizer string, failure error) error {
	if object.GetDeletionTimestamp().IsZero() || !apierrors.IsForbidden(failure) {
		return failure
	}
	goes, err := NamespaceTerminating(ctx, live, object.GetNamespace())
	if err != nil || !goes {
		return errors.Join(failure, err)
	}
	ctrl.LoggerFrom(ctx).Info("The permissions went before the object did: letting it go with its namespace", "failure", failure.Error())
	return PatchMetadata(ctx, c, object, func(o client.Object) { controllerutil.RemoveFinalizer(o, finalizer) })
}
