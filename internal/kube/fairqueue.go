package kube

import (
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// newFairQueue returns a controller's queue that takes objects from all namespaces in turn, so that
// many objects of one tenant do not delay those of another. It replaces controller-runtime's
// priority queue, which knows no namespaces.
func newFairQueue(
	controllerName string, limiter workqueue.TypedRateLimiter[reconcile.Request],
) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[reconcile.Request]{
		Name: controllerName, Queue: &namespaceTurns{waiting: map[string][]reconcile.Request{}},
	})
	delayed := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[reconcile.Request]{
		Name: controllerName, Queue: queue,
	})
	return fairQueue{workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{
		Name: controllerName, DelayingQueue: delayed,
	})}
}

type fairQueue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
}

// Get returns no request after ShutDown. Otherwise the operator would, when it stops, reconcile all
// waiting objects with a context that has ended.
func (q fairQueue) Get() (request reconcile.Request, shutdown bool) {
	request, shutdown = q.TypedRateLimitingInterface.Get()
	if !shutdown && q.ShuttingDown() {
		q.Done(request)
		return reconcile.Request{}, true
	}
	return request, shutdown
}

// namespaceTurns stores the waiting requests: first in, first out within a namespace, and one of
// each namespace after the other.
type namespaceTurns struct {
	waiting map[string][]reconcile.Request
	turns   []string // namespaces with waiting requests
	length  int
}

// Touch does nothing: a request that is added again keeps its place.
func (*namespaceTurns) Touch(reconcile.Request) {}

// Push adds a request as the last one of its namespace.
func (q *namespaceTurns) Push(request reconcile.Request) {
	if len(q.waiting[request.Namespace]) == 0 {
		q.turns = append(q.turns, request.Namespace)
	}
	q.waiting[request.Namespace] = append(q.waiting[request.Namespace], request)
	q.length++
}

// Len returns the number of waiting requests.
func (q *namespaceTurns) Len() int { return q.length }

// Pop removes and returns the first request of the namespace whose turn it is.
func (q *namespaceTurns) Pop() reconcile.Request {
	namespace := q.turns[0]
	q.turns = q.turns[1:]
	request := q.waiting[namespace][0]
	if q.waiting[namespace] = q.waiting[namespace][1:]; len(q.waiting[namespace]) > 0 {
		q.turns = append(q.turns, namespace)
	} else {
		delete(q.waiting, namespace)
	}
	q.length--
	return request
}
