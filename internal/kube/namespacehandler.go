package kube

import (
	"context"
	"maps"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// delayPerRequest is the delay of the next time for each enqueued object: 0.5 s for 100 objects.
const delayPerRequest = 5 * time.Millisecond

// NamespaceHandler enqueues all objects that a change in their namespace may affect, such as the Queues of a namespace when a
// Policy changes. The first change enqueues them at once. Further changes are combined: the more objects were enqueued, the
// later they are enqueued again. Otherwise a tenant that creates 10,000 Policies and as many Queues would cause 10⁸
// reconciliations.
type NamespaceHandler struct {
	changed  func(namespace string)
	affected func(ctx context.Context, namespace string) []reconcile.Request

	mutex sync.Mutex
	// next is the earliest time at which the objects of a namespace are enqueued again.
	next map[string]time.Time
	// pending are the priorities of requests that will be enqueued, by namespace.
	pending map[string]int
}

var _ handler.EventHandler = &NamespaceHandler{}

// NewNamespaceHandler returns a handler that calls changed at once for each change, and then enqueues the objects that affected
// returns.
func NewNamespaceHandler(changed func(namespace string), affected func(ctx context.Context, namespace string) []reconcile.Request) *NamespaceHandler {
	return &NamespaceHandler{changed: changed, affected: affected, next: map[string]time.Time{}, pending: map[string]int{}}
}

type requestQueue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Create implements handler.EventHandler.
func (h *NamespaceHandler) Create(ctx context.Context, e event.CreateEvent, queue requestQueue) {
	priority := 0
	if e.IsInInitialList {
		priority = handler.LowPriority
	}
	h.handle(ctx, e.Object, priority, queue)
}

// Update implements handler.EventHandler.
func (h *NamespaceHandler) Update(ctx context.Context, e event.UpdateEvent, queue requestQueue) {
	h.handle(ctx, e.ObjectNew, 0, queue)
}

// Delete implements handler.EventHandler.
func (h *NamespaceHandler) Delete(ctx context.Context, e event.DeleteEvent, queue requestQueue) {
	h.handle(ctx, e.Object, 0, queue)
}

// Generic implements handler.EventHandler.
func (h *NamespaceHandler) Generic(ctx context.Context, e event.GenericEvent, queue requestQueue) {
	h.handle(ctx, e.Object, 0, queue)
}

func (h *NamespaceHandler) handle(ctx context.Context, object client.Object, priority int, queue requestQueue) {
	namespace := object.GetNamespace()
	h.changed(namespace)
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if pending, found := h.pending[namespace]; found {
		h.pending[namespace] = max(pending, priority)
		return
	}
	h.pending[namespace] = priority
	ctx = context.WithoutCancel(ctx) // it ends with the handler, before the cache of the objects may be filled
	// The queue cannot wait: it merges a delayed request with an earlier one for the same object.
	time.AfterFunc(time.Until(h.next[namespace]), func() { h.enqueue(ctx, namespace, queue) })
}

// enqueue enqueues the objects of a namespace. A later change enqueues them again.
func (h *NamespaceHandler) enqueue(ctx context.Context, namespace string, queue requestQueue) {
	h.mutex.Lock()
	priority := h.pending[namespace]
	delete(h.pending, namespace)
	h.mutex.Unlock()

	requests := h.affected(ctx, namespace)
	AddWithPriority(queue, priority, 0, requests...)
	h.mutex.Lock()
	defer h.mutex.Unlock()
	now := time.Now()
	maps.DeleteFunc(h.next, func(_ string, next time.Time) bool { return next.Before(now) })
	h.next[namespace] = now.Add(delayPerRequest * time.Duration(len(requests)))
}
