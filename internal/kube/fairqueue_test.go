package kube

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/yardmaster/yardmaster/test/require"
)

func requestFor(namespace, name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

func TestObjectsOfANamespaceDoNotWaitForAllObjectsOfAnother(t *testing.T) {
	queue := newTestQueue(t)
	for i := range 1000 {
		queue.Add(requestFor("crowd", fmt.Sprint(i)))
	}
	queue.Add(requestFor("other", "a"))
	queue.Add(requestFor("third", "x"))
	queue.Add(requestFor("other", "b"))
	require.Equal(t, []string{"crowd/0 0", "other/a 0", "third/x 0", "crowd/1 0", "other/b 0", "crowd/2 0"}, take(queue, 6))
	require.Equal(t, 997, queue.Len())
}

// newTestQueue returns a controller's queue, which has priorities as controllers use them.
func newTestQueue(t *testing.T) priorityqueue.PriorityQueue[reconcile.Request] {
	t.Helper()
	options := ControllerOptions(1)
	queue, ok := options.NewQueue("test", options.RateLimiter).(priorityqueue.PriorityQueue[reconcile.Request])
	require.True(t, ok, "the queue has no priorities, so that controller-runtime ignores them")
	t.Cleanup(queue.ShutDown)
	return queue
}

// take returns requests in the order in which workers get them, with their priority.
func take(queue priorityqueue.PriorityQueue[reconcile.Request], number int) (taken []string) {
	for range number {
		request, priority, _ := queue.GetWithPriority()
		taken = append(taken, fmt.Sprintf("%s %d", request, priority))
		queue.Done(request)
	}
	return taken
}

func TestWithinANamespaceTheHighestPriorityComesFirst(t *testing.T) {
	queue := newTestQueue(t)
	add := func(priority int, namespace, name string) {
		queue.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, requestFor(namespace, name))
	}
	add(handler.LowPriority, "a", "listed")
	queue.Add(requestFor("a", "changed"))
	add(1, "a", "running-1")
	add(1, "a", "running-2")
	add(handler.LowPriority, "b", "listed")
	want := []string{"a/running-1 1", "b/listed -100", "a/running-2 1", "a/changed 0", "a/listed -100"}
	require.Equal(t, want, take(queue, queue.Len()))
}

func TestAWaitingObjectKeepsTheHighestRequestedPriority(t *testing.T) {
	queue := newTestQueue(t)
	for _, name := range []string{"first", "second", "third"} {
		queue.AddWithOpts(priorityqueue.AddOpts{Priority: new(handler.LowPriority)}, requestFor("a", name))
	}
	queue.AddWithOpts(priorityqueue.AddOpts{Priority: new(1)}, requestFor("a", "third"))
	queue.Add(requestFor("a", "third"))
	queue.Add(requestFor("a", "second"))
	require.Equal(t, []string{"a/third 1", "a/second 0", "a/first -100"}, take(queue, queue.Len()))
	queue.AddWithOpts(priorityqueue.AddOpts{Priority: new(handler.LowPriority)}, requestFor("a", "third"))
	require.Equal(t, []string{"a/third -100"}, take(queue, queue.Len()))
}

func TestAnObjectAddedWhileItIsReconciledAndADelayedOneHaveTheirPriority(t *testing.T) {
	queue := newTestQueue(t)
	queue.Add(requestFor("a", "reconciled"))
	request, _ := queue.Get()
	queue.AddWithOpts(priorityqueue.AddOpts{Priority: new(2)}, request)
	queue.Done(request)
	queue.AddWithOpts(priorityqueue.AddOpts{Priority: new(3), RateLimited: true}, requestFor("a", "delayed"))
	require.Equal(t, []string{"a/reconciled 2", "a/delayed 3"}, take(queue, 2))
}

func TestNoRequestIsLostWhenManyAreAddedAndTakenAtOnce(t *testing.T) {
	queue := newTestQueue(t)
	const adders, requests = 4, 500
	added := map[reconcile.Request]bool{}
	for i := range requests {
		added[requestFor(fmt.Sprint(i%7), fmt.Sprint(i))] = true
	}
	var group sync.WaitGroup
	for adder := range adders {
		group.Go(func() {
			for request := range added {
				queue.AddWithOpts(priorityqueue.AddOpts{Priority: &adder, After: time.Duration(adder) * time.Millisecond}, request)
			}
		})
	}
	taken := map[reconcile.Request]bool{}
	for len(taken) < requests {
		request, _ := queue.Get()
		taken[request] = true
		queue.Done(request)
	}
	group.Wait()
	require.Equal(t, added, taken)
}

func TestWaitingObjectsAreNotReconciledAfterTheOperatorStops(t *testing.T) {
	queue := newTestQueue(t)
	queue.Add(requestFor("a", "a"))
	queue.Add(requestFor("a", "b"))
	queue.ShutDown()
	if request, shutdown := queue.Get(); !shutdown {
		t.Errorf("%s is returned", request)
	}
}
