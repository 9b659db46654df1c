package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
)

var queueResource = schema.GroupResource{Group: "yardmaster.dev", Resource: "queues"}

func reconcilerReturning(failure func() error) reconcile.Reconciler {
	return RequeueOnConflict(reconcile.Func(func(context.Context, ctrl.Request) (ctrl.Result, error) {
		return ctrl.Result{RequeueAfter: time.Hour}, failure()
	}))
}

func TestReconciliationIsRetriedSoonAfterAConflict(t *testing.T) {
	failure := errors.New("broken")
	for title, test := range map[string]struct {
		err  error
		wait time.Duration
		want error
	}{
		"success keeps its result":     {nil, time.Hour, nil},
		"the object has changed":       {fmt.Errorf("patching: %w", apierrors.NewConflict(queueResource, "mail", failure)), minConflictBackoff, nil},
		"the object was deleted":       {fmt.Errorf("patching: %w", apierrors.NewNotFound(queueResource, "mail")), minConflictBackoff, nil},
		"the decision used stale data": {fmt.Errorf("patching: %w", ErrStale), minConflictBackoff, nil},
		"any other error is returned":  {failure, time.Hour, failure},
	} {
		t.Run(title, func(t *testing.T) {
			result, err := reconcilerReturning(func() error { return test.err }).Reconcile(t.Context(), ctrl.Request{})
			require.ErrorIs(t, err, test.want)
			require.Equal(t, test.wait, result.RequeueAfter)
		})
	}
}

func TestConsecutiveConflictsBackOffAndFinallyFail(t *testing.T) {
	err := ErrStale
	r := reconcilerReturning(func() error { return err })
	previous := time.Duration(0)
	for range maxConsecutiveConflicts {
		result, err := r.Reconcile(t.Context(), ctrl.Request{})
		isLonger := err == nil && result.RequeueAfter >= previous && result.RequeueAfter <= maxConflictBackoff
		require.True(t, isLonger, "requeued after %s, %v, having waited %s before", result.RequeueAfter, err, previous)
		previous = result.RequeueAfter
	}
	_, got := r.Reconcile(t.Context(), ctrl.Request{})
	require.ErrorIs(t, got, ErrStale)
	err = nil
	require.Call(r.Reconcile(t.Context(), ctrl.Request{})).Succeeds(t)
	err = ErrStale
	require.Equal(t, minConflictBackoff, require.Call(r.Reconcile(t.Context(), ctrl.Request{})).Succeeds(t).RequeueAfter)
}

// Each error is logged. The cache may lag for minutes, for example while namespaces are deleted.
func TestConflictsThatPersistFailAtMostOnceAMinute(t *testing.T) {
	r := reconcilerReturning(func() error { return ErrStale })
	waited := time.Duration(0)
	for range 10 * (maxConsecutiveConflicts + 1) {
		result, err := r.Reconcile(t.Context(), ctrl.Request{})
		if waited += result.RequeueAfter; err == nil {
			continue
		}
		require.True(t, waited >= time.Minute, "a conflict failed after %s", waited)
		waited = 0
	}
}

func TestErrorOfAWriteIsARefusalOrIsRetried(t *testing.T) {
	jobs := schema.GroupResource{Group: "batch", Resource: "jobs"}
	terminating := apierrors.NewForbidden(jobs, "a", errors.New("the namespace is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	conflict := apierrors.NewConflict(jobs, "a", errors.New("changed"))
	for title, row := range map[string]struct {
		err         error
		wantRefusal decision.Class
		wantErr     error
	}{
		"no error":                       {},
		"an invalid object is a refusal": {err: apierrors.NewInvalid(schema.GroupKind{Kind: "Job"}, "a", nil), wantRefusal: decision.Invalid},
		"a terminating namespace is retried silently": {err: terminating, wantErr: ErrStale},
		"another error is returned":                   {err: conflict, wantErr: conflict},
	} {
		t.Run(title, func(t *testing.T) {
			refusal, err := AsRefusal(row.err, decision.Refusal{Kind: "Job", Name: "a"})
			require.True(t, errors.Is(err, row.wantErr), "got %v", err)
			var got decision.Class
			if refusal != nil {
				got = refusal.Class
			}
			assert.Equal(t, "class of the refusal", row.wantRefusal, got)
		})
	}
}

func TestRetryAfterIsDroppedFromUnavailableResponsesOnly(t *testing.T) {
	for title, test := range map[string]struct {
		code int
		want string
	}{
		"kind is not served yet": {http.StatusServiceUnavailable, ""},
		"too many requests":      {http.StatusTooManyRequests, "5"},
		"internal error":         {http.StatusInternalServerError, "5"},
	} {
		t.Run(title, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "5")
				w.WriteHeader(test.code)
			}))
			defer server.Close()
			request := require.Call(http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)).Succeeds(t)
			response, err := IgnoreRetryAfter(http.DefaultTransport).RoundTrip(request)
			require.NoError(t, err)
			defer response.Body.Close()
			require.Equal(t, test.want, response.Header.Get("Retry-After"))
		})
	}
}

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
	request, shutdown := queue.Get()
	require.True(t, shutdown, "%s is returned", request)
}

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

func TestNamespaceCacheComputesOncePerNamespaceUntilItIsInvalidated(t *testing.T) {
	computed := map[string]int{}
	c := NewNamespaceCache(func(_ context.Context, namespace string) (int, error) {
		computed[namespace]++
		return computed[namespace], nil
	})
	want := func(namespace string, value int) {
		t.Helper()
		require.Equal(t, value, require.Call(c.Get(t.Context(), namespace)).Succeeds(t))
	}
	want("a", 1)
	want("a", 1)
	want("b", 1)
	c.Invalidate("a")
	want("a", 2)
	want("b", 1)
}

func TestNamespaceCacheStoresNoResultThatWasInvalidatedWhileItWasComputed(t *testing.T) {
	value := "old"
	var c *NamespaceCache[string]
	c = NewNamespaceCache(func(_ context.Context, namespace string) (string, error) {
		computed := value
		if value == "old" { // an object changes after it was read
			value = "new"
			c.Invalidate(namespace)
		}
		return computed, nil
	})
	_, _ = c.Get(t.Context(), "a")
	require.Equal(t, "new", require.Call(c.Get(t.Context(), "a")).Succeeds(t))
}

func TestNamespaceCacheStoresNoErrors(t *testing.T) {
	failing := errors.New("the cache is not started")
	c := NewNamespaceCache(func(context.Context, string) (int, error) { return 1, failing })
	_, err := c.Get(t.Context(), "a")
	require.ErrorIs(t, err, failing)
	failing = nil
	require.Equal(t, 1, require.Call(c.Get(t.Context(), "a")).Succeeds(t))
}

func TestLimitOfOneNamespaceTakesNothingFromAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := NewNamespaceLimiter(2, 20)
		allowed := func(namespace string, events int) (count int) {
			for range events {
				if limiter.Allow(namespace) {
					count++
				}
			}
			return count
		}
		require.Equal(t, 20, allowed("busy", 1000))
		require.Equal(t, 10, allowed("quiet", 10))
		time.Sleep(5 * time.Second)
		require.Equal(t, 10, allowed("busy", 1000))
	})
}
