package kube

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// PatchMetadata writes a change of an object's metadata, such as its finalizers, only
// over the version that was read; it does nothing when the change changes nothing. On
// success object is what the API server stored. An object whose last finalizer is
// removed may be gone by then, which is no error.
func PatchMetadata(ctx context.Context, c client.Client, object client.Object, change func(client.Object)) error {
	before := object.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy has its original's type
	change(object)
	if equality.Semantic.DeepEqual(before, object) {
		return nil
	}
	err := c.Patch(ctx, object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if !before.GetDeletionTimestamp().IsZero() {
		return client.IgnoreNotFound(err)
	}
	return err
}
