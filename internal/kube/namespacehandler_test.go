package kube

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
)

// handledNamespaces is a NamespaceHandler whose namespaces have the same number of objects.
type handledNamespaces struct {
	*NamespaceHandler
	queue *recordedRequests
	// changes of each namespace.
	changes map[string]int
}

// recordedRequests is a queue that is never read.
type recordedRequests struct {
	priorityqueue.PriorityQueue[reconcile.Request]
	mutex      sync.Mutex
	added      map[string]int // by namespace
	priorities []int
}

func (q *recordedRequests) AddWithOpts(options priorityqueue.AddOpts, requests ...reconcile.Request) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	for _, request := range requests {
		q.added[request.Namespace]++
		q.priorities = append(q.priorities, *options.Priority)
	}
}

func newHandledNamespaces(objects int) *handledNamespaces {
	h := &handledNamespaces{queue: &recordedRequests{added: map[string]int{}}, changes: map[string]int{}}
	h.NamespaceHandler = NewNamespaceHandler(
		func(namespace string) { h.changes[namespace]++ },
		func(_ context.Context, namespace string) (requests []reconcile.Request) {
			for i := range objects {
				requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: fmt.Sprint(i)}})
			}
			return requests
		})
	return h
}

func (h *handledNamespaces) change(t *testing.T, namespace string) {
	t.Helper()
	changed := &v1alpha1.Policy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}}
	h.Update(t.Context(), event.UpdateEvent{ObjectNew: changed}, h.queue)
	synctest.Wait()
}

func (h *handledNamespaces) wantAdded(t *testing.T, namespace string, want int) {
	t.Helper()
	synctest.Wait()
	h.queue.mutex.Lock()
	defer h.queue.mutex.Unlock()
	assert.Equal(t, "requests of "+namespace, want, h.queue.added[namespace])
}

func TestFurtherChangesOfANamespaceAreCombined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandledNamespaces(1000)
		for range 100 {
			h.change(t, "a")
		}
		h.wantAdded(t, "a", 1000)
		h.change(t, "b") // other namespaces do not wait
		h.wantAdded(t, "b", 1000)
		require.True(t, h.changes["a"] == 100, "%d changes were reported at once, want all", h.changes["a"])
		time.Sleep(1000*delayPerRequest - time.Millisecond)
		h.wantAdded(t, "a", 1000)
		time.Sleep(time.Millisecond)
		h.wantAdded(t, "a", 2000) // after the last change, so that none is missed
		time.Sleep(time.Hour)
		h.wantAdded(t, "a", 2000)
		h.change(t, "a")
		h.wantAdded(t, "a", 3000)
	})
}

func TestObjectsThatExistAtTheStartAreEnqueuedWithLowPriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandledNamespaces(1)
		h.Create(t.Context(), event.CreateEvent{Object: &v1alpha1.Policy{}, IsInInitialList: true}, h.queue)
		synctest.Wait()
		h.Create(t.Context(), event.CreateEvent{Object: &v1alpha1.Policy{}, IsInInitialList: true}, h.queue)
		h.Create(t.Context(), event.CreateEvent{Object: &v1alpha1.Policy{}}, h.queue)
		time.Sleep(time.Second)
		synctest.Wait()
		h.queue.mutex.Lock()
		defer h.queue.mutex.Unlock()
		require.Equal(t, fmt.Sprint([]int{handler.LowPriority, 0}), fmt.Sprint(h.queue.priorities))
	})
}

func TestNamespaceHandlerForgetsNamespacesWithoutRecentChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandledNamespaces(1)
		for i := range 10 {
			h.change(t, fmt.Sprint(i))
			time.Sleep(time.Minute)
		}
		h.mutex.Lock()
		defer h.mutex.Unlock()
		require.True(t, len(h.next) == 1 && len(h.pending) == 0, "%d namespaces are stored", len(h.next)+len(h.pending))
	})
}

func TestNamespaceHandlerWorksWithQueuesWithoutPriorities(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandledNamespaces(2)
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer queue.ShutDown()
		h.Delete(t.Context(), event.DeleteEvent{Object: &v1alpha1.Policy{}}, queue)
		synctest.Wait()
		require.Equal(t, 2, queue.Len())
	})
}

// The context of an event ends with its handler.
func TestObjectsAreListedAfterTheHandlerOfTheChangeHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listed := make(chan error, 1)
		h := newHandledNamespaces(1)
		h.affected = func(ctx context.Context, _ string) []reconcile.Request {
			listed <- ctx.Err()
			return nil
		}
		h.next["a"] = time.Now().Add(time.Second)
		ctx, end := context.WithCancel(t.Context())
		h.Delete(ctx, event.DeleteEvent{Object: &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Namespace: "a"}}}, h.queue)
		end()
		require.NoError(t, <-listed)
	})
}
