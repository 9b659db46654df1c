package kube

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// PatchMetadata changes an object's metadata, such as its finalizers, only if the object still has
// the version that was read. Without a difference it does nothing. On success object is the stored
// object. A deleted object may disappear in the meantime, which is not an error.
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
