package kube

import (
	"cmp"
	"container/heap"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// newFairQueue returns a controller's queue that takes objects from all namespaces in turn, so that many objects of one tenant
// do not delay the objects of another. Within a namespace, it returns the object with the highest priority, as
// controller-runtime's own queue does for all namespaces.
func newFairQueue(
	controllerName string, limiter workqueue.TypedRateLimiter[reconcile.Request],
) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	priorities := &requestPriorities{requested: map[reconcile.Request]int{}, taken: map[reconcile.Request]int{}}
	queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[reconcile.Request]{
		Name: controllerName, Queue: newNamespaceTurns(priorities),
	})
	delayed := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[reconcile.Request]{
		Name: controllerName, Queue: queue,
	})
	limited := workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{
		Name: controllerName, DelayingQueue: delayed,
	})
	return &fairQueue{TypedRateLimitingInterface: limited, limiter: limiter, priorities: priorities}
}

type fairQueue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	limiter    workqueue.TypedRateLimiter[reconcile.Request]
	priorities *requestPriorities
	// keptBackoff has the requests for which the next Forget has no effect.
	keptBackoff sync.Map
}

var _ priorityqueue.PriorityQueue[reconcile.Request] = &fairQueue{}

// AddWithOpts adds requests. A waiting request keeps the higher of both priorities.
func (q *fairQueue) AddWithOpts(options priorityqueue.AddOpts, requests ...reconcile.Request) {
	for _, request := range requests {
		after := options.After
		if options.RateLimited {
			limit := q.limiter.When(request)
			after = min(cmp.Or(after, limit), limit)
		}
		q.priorities.raise(request, ptr.Deref(options.Priority, 0))
		q.TypedRateLimitingInterface.AddAfter(request, after)
	}
}

// Add adds a request with priority 0.
func (q *fairQueue) Add(request reconcile.Request) {
	q.AddWithOpts(priorityqueue.AddOpts{}, request)
}

// AddAfter adds a request with priority 0 after this time.
func (q *fairQueue) AddAfter(request reconcile.Request, after time.Duration) {
	q.AddWithOpts(priorityqueue.AddOpts{After: after}, request)
}

// AddRateLimited adds a request with priority 0 when the rate limiter allows it.
func (q *fairQueue) AddRateLimited(request reconcile.Request) {
	q.AddWithOpts(priorityqueue.AddOpts{RateLimited: true}, request)
}

// KeepBackoff makes the next call of Forget for the request have no effect. A reconciliation that has not decided yet calls it:
// it ends without an error, after which the controller would reset the backoff.
func (q *fairQueue) KeepBackoff(request reconcile.Request) { q.keptBackoff.Store(request, true) }

// Forget resets the backoff of a request.
func (q *fairQueue) Forget(request reconcile.Request) {
	if _, kept := q.keptBackoff.LoadAndDelete(request); !kept {
		q.TypedRateLimitingInterface.Forget(request)
	}
}

// Get is GetWithPriority without the priority.
func (q *fairQueue) Get() (request reconcile.Request, shutdown bool) {
	request, _, shutdown = q.GetWithPriority()
	return request, shutdown
}

// GetWithPriority returns no request after ShutDown. Otherwise a stopping operator would reconcile all waiting objects with a
// context that has ended.
func (q *fairQueue) GetWithPriority() (request reconcile.Request, priority int, shutdown bool) {
	request, shutdown = q.TypedRateLimitingInterface.Get()
	if shutdown {
		return request, 0, true
	}
	if q.ShuttingDown() {
		q.Done(request)
		return reconcile.Request{}, 0, true
	}
	return request, q.priorities.takenWith(request), false
}

// requestPriorities stores the priority of each request from when it is added, also with a delay, until a worker gets it.
type requestPriorities struct {
	mutex     sync.Mutex
	requested map[reconcile.Request]int // of requests that wait or are delayed
	taken     map[reconcile.Request]int // of requests that a worker is about to get
}

// raise records a priority unless the request has a higher priority.
func (p *requestPriorities) raise(request reconcile.Request, priority int) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if current, found := p.requested[request]; !found || priority > current {
		p.requested[request] = priority
	}
}

func (p *requestPriorities) of(request reconcile.Request) int {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.requested[request]
}

func (p *requestPriorities) take(request reconcile.Request, priority int) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	delete(p.requested, request)
	p.taken[request] = priority
}

func (p *requestPriorities) takenWith(request reconcile.Request) int {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	priority := p.taken[request]
	delete(p.taken, request)
	return priority
}

// namespaceTurns stores the waiting requests and returns a request of each namespace in turn. It is the storage of a workqueue,
// which calls its methods one at a time.
type namespaceTurns struct {
	priorities *requestPriorities
	namespaces map[string]*prioritizedRequests
	turns      []string // namespaces with waiting requests
	waiting    map[reconcile.Request]*waitingRequest
	added      int // requests ever added
}

func newNamespaceTurns(priorities *requestPriorities) *namespaceTurns {
	return &namespaceTurns{
		priorities: priorities, namespaces: map[string]*prioritizedRequests{}, waiting: map[reconcile.Request]*waitingRequest{},
	}
}

// Touch moves a waiting request whose priority was raised behind the others with this priority. With the same priority it keeps
// its place.
func (q *namespaceTurns) Touch(request reconcile.Request) {
	waiting, found := q.waiting[request]
	if priority := q.priorities.of(request); found && priority > waiting.priority {
		q.added++
		waiting.priority, waiting.added = priority, q.added
		heap.Fix(q.namespaces[request.Namespace], waiting.position)
	}
}

// Push adds a request.
func (q *namespaceTurns) Push(request reconcile.Request) {
	requests := q.namespaces[request.Namespace]
	if requests == nil {
		requests = &prioritizedRequests{}
		q.namespaces[request.Namespace] = requests
		q.turns = append(q.turns, request.Namespace)
	}
	q.added++
	waiting := &waitingRequest{request: request, priority: q.priorities.of(request), added: q.added}
	q.waiting[request] = waiting
	heap.Push(requests, waiting)
}

// Len returns the number of waiting requests.
func (q *namespaceTurns) Len() int { return len(q.waiting) }

// Pop removes and returns the first request of the next namespace.
func (q *namespaceTurns) Pop() reconcile.Request {
	namespace := q.turns[0]
	q.turns = q.turns[1:]
	requests := q.namespaces[namespace]
	first, _ := heap.Pop(requests).(*waitingRequest)
	if requests.Len() > 0 {
		q.turns = append(q.turns, namespace)
	} else {
		delete(q.namespaces, namespace)
	}
	delete(q.waiting, first.request)
	q.priorities.take(first.request, first.priority)
	return first.request
}

type waitingRequest struct {
	request  reconcile.Request
	priority int
	added    int // a lower number was added earlier
	position int // in the heap
}

// prioritizedRequests is a heap: the highest priority first, and the earliest within a priority.
type prioritizedRequests []*waitingRequest

func (h prioritizedRequests) Len() int { return len(h) }

func (h prioritizedRequests) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(h[j].priority, h[i].priority), cmp.Compare(h[i].added, h[j].added)) < 0
}

func (h prioritizedRequests) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].position, h[j].position = i, j
}

// Push is called by the heap package.
func (h *prioritizedRequests) Push(x any) {
	waiting, _ := x.(*waitingRequest)
	waiting.position = len(*h)
	*h = append(*h, waiting)
}

// Pop is called by the heap package.
func (h *prioritizedRequests) Pop() any {
	last := len(*h) - 1
	waiting := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return waiting
}
