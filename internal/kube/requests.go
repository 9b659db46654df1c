package kube

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// AddWithPriority adds requests to a controller's queue after this time, with the priority if the queue has priorities.
func AddWithPriority(queue workqueue.TypedRateLimitingInterface[reconcile.Request], priority int, after time.Duration, requests ...reconcile.Request) {
	if prioritized, ok := queue.(priorityqueue.PriorityQueue[reconcile.Request]); ok {
		prioritized.AddWithOpts(priorityqueue.AddOpts{Priority: &priority, After: after}, requests...)
		return
	}
	for _, request := range requests {
		queue.AddAfter(request, after)
	}
}

// RequestsForList returns a request for each object in the cache that the options select. It logs an error and returns nothing,
// because an event handler cannot return errors.
func RequestsForList(ctx context.Context, cache client.Reader, list client.ObjectList, which ...client.ListOption) []reconcile.Request {
	if err := cache.List(ctx, list, append(which, client.UnsafeDisableDeepCopy)...); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Could not list the objects that a change affects", "list", fmt.Sprintf("%T", list))
		return nil
	}
	var all []reconcile.Request
	_ = meta.EachListItem(list, func(item runtime.Object) error { // fails only for a type that is not a list
		if object, ok := item.(client.Object); ok {
			all = append(all, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(object)})
		}
		return nil
	})
	return all
}
