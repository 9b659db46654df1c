package kube

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// RequestsForList are those for all objects that a list then holds: what the options select in the
// cache. A list that fails is logged and is none: who watches has nobody to tell it.
func RequestsForList(ctx context.Context, cache client.Reader, list client.ObjectList, which ...client.ListOption) []reconcile.Request {
	if err := cache.List(ctx, list, append(which, client.UnsafeDisableDeepCopy)...); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing the objects that a change may be about", "list", fmt.Sprintf("%T", list))
		return nil
	}
	var all []reconcile.Request
	_ = meta.EachListItem(list, func(item runtime.Object) error { // fails only if this does, or list is none
		if object, is := item.(client.Object); is {
			all = append(all, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(object)})
		}
		return nil
	})
	return all
}
