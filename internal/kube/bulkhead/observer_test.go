package bulkhead

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/test/require"
)

var testObject = types.NamespacedName{Namespace: "a", Name: "x"}

type testObserver struct {
	*Observer[int]

	t     *testing.T
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
	calls int
}

func newTestObserver(t *testing.T) *testObserver {
	o := &testObserver{Observer: NewObserver[int](DefaultLimits()), t: t}
	options := kube.ControllerOptions(1)
	o.queue = options.NewQueue("test", options.RateLimiter)
	t.Cleanup(o.queue.ShutDown)
	require.NoError(t, o.EnqueueTo(t.Context(), o.queue))
	return o
}

// observe calls Observe with an observation that counts its calls.
func (o *testObserver) observe(subject string) (int, bool, error) {
	return o.Observe(o.t.Context(), testObject, subject, "peer", func(context.Context) (int, error) { return o.count() })
}

// start starts an observation, which there is no result of yet.
func (o *testObserver) start(subject string, observe func() (int, error)) {
	o.t.Helper()
	got, found, _ := o.Observe(o.t.Context(), testObject, subject, "peer", func(context.Context) (int, error) { return observe() })
	require.True(o.t, !found, "found %d before it was observed", got)
}

func (o *testObserver) count() (int, error) {
	o.calls++
	return o.calls, nil
}

func (o *testObserver) awaitRequest() {
	o.t.Helper()
	request, _ := o.queue.Get()
	require.True(o.t, request.NamespacedName == testObject, "%s was enqueued", request)
	o.queue.Done(request)
}

func TestAnObservationIsUsedOnceByTheReconciliationThatItEnqueues(t *testing.T) {
	o := newTestObserver(t)
	for want := range 3 {
		o.start("v1", o.count)
		o.awaitRequest()
		got, found, err := o.observe("v1")
		require.True(t, found && got == want+1 && err == nil, "%d, %t, %v, want %d", got, found, err, want+1)
	}
}

func TestAnObservationOfAnotherSubjectIsMadeAgain(t *testing.T) {
	o := newTestObserver(t)
	o.start("two workers", o.count)
	o.awaitRequest()
	o.start("three workers", o.count)
	o.awaitRequest()
	got, found, _ := o.observe("three workers")
	require.True(t, found && got == 2, "%d, %t, want the second observation", got, found)
}

func TestAReconciliationDuringAnObservationOfAnotherSubjectLeadsToANewOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newTestObserver(t)
		hanging := make(chan struct{})
		o.start("old", func() (int, error) { <-hanging; return 0, nil })
		synctest.Wait()
		o.start("new", o.count) // does nothing, because the old one runs
		close(hanging)
		o.awaitRequest()
		o.start("new", o.count)
		o.awaitRequest()
		got, found, _ := o.observe("new")
		require.True(t, found && got == 1, "%d, %t, want the first new observation", got, found)
	})
}

func TestAnErrorOrPanicOfAnObservationIsThatOfTheReconciliation(t *testing.T) {
	o := newTestObserver(t)
	want := errors.New("refused")
	o.start("v1", func() (int, error) { return 0, want })
	o.awaitRequest()
	_, found, err := o.observe("v1")
	require.True(t, found && errors.Is(err, want), "%t, %v, want %v", found, err, want)
	o.start("v1", func() (int, error) { panic("out of range") })
	o.awaitRequest()
	defer func() {
		reason, _ := recover().(string)
		require.Contains(t, reason, "out of range")
		require.Contains(t, reason, "observer_test.go")
	}()
	_, _, _ = o.observe("v1") //nolint:dogsled // it panics
}

// The test calls the queue as controller-runtime does after each reconciliation.
func TestAnObjectThatFailsEachTimeKeepsItsBackoff(t *testing.T) {
	o := newTestObserver(t)
	request := reconcile.Request{NamespacedName: testObject}
	for failures := 1; failures <= 5; failures++ {
		o.start("v1", o.count)
		o.queue.Forget(request) // the reconciliation ends without an error
		o.awaitRequest()
		_, found, _ := o.observe("v1")
		require.True(t, found, "no observation")
		o.queue.AddRateLimited(request) // it fails
		require.Equal(t, failures, o.queue.NumRequeues(request))
		o.awaitRequest()
	}
	o.start("v1", o.count)
	o.queue.Forget(request)
	o.awaitRequest()
	_, _, _ = o.observe("v1") //nolint:dogsled // only the queue matters
	o.queue.Forget(request)   // it succeeds
	require.Equal(t, 0, o.queue.NumRequeues(request))
}

func TestAQueueThatForgetsFailuresIsRefused(t *testing.T) {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	require.True(t, NewObserver[int](DefaultLimits()).EnqueueTo(t.Context(), queue) != nil, "no error")
}

func TestADeletedObjectLeavesNothing(t *testing.T) {
	o := newTestObserver(t)
	o.start("v1", o.count)
	o.awaitRequest()
	o.Forget(testObject)
	require.Equal(t, 0, len(o.results))
}

// testWork is work that runs until it is released, or for a given time.
type testWork struct {
	t        *testing.T
	executor *Executor
	mutex    sync.Mutex
	running  []string
	started  []string
	release  map[string]chan struct{}
}

func newTestWork(t *testing.T, limits Limits) *testWork {
	return &testWork{t: t, executor: NewExecutor(limits), release: map[string]chan struct{}{}}
}

// hang starts work of an object that runs until end is called.
func (w *testWork) hang(namespace, name, peer string) {
	key := namespace + "/" + name
	released := make(chan struct{})
	w.mutex.Lock()
	w.release[key] = released
	w.mutex.Unlock()
	w.executor.Go(types.NamespacedName{Namespace: namespace, Name: name}, peer, func() {
		w.mutex.Lock()
		w.running, w.started = append(w.running, key), append(w.started, key)
		w.mutex.Unlock()
		<-released
		w.mutex.Lock()
		defer w.mutex.Unlock()
		w.running = slices.DeleteFunc(w.running, func(other string) bool { return other == key })
	}, func() {})
}

func (w *testWork) end(keys ...string) {
	for _, key := range keys {
		w.mutex.Lock()
		close(w.release[key])
		w.mutex.Unlock()
		synctest.Wait()
	}
}

func (w *testWork) endAll() {
	synctest.Wait()
	for len(w.nowRunning()) > 0 {
		w.end(w.nowRunning()...)
	}
}

func (w *testWork) nowRunning() []string {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return slices.Sorted(slices.Values(w.running))
}

func (w *testWork) requireRunning(want ...string) {
	w.t.Helper()
	synctest.Wait()
	require.Equal(w.t, slices.Sorted(slices.Values(want)), w.nowRunning())
}

func TestAPeerThatDoesNotAnswerDelaysOnlyWhatDependsOnIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestWork(t, Limits{PerPeer: 2, PerNamespace: 3, Slow: 1, Total: 10})
		for i := range 5 {
			w.hang("a", fmt.Sprint(i), "hanging")
		}
		w.requireRunning("a/0", "a/1")
		w.hang("a", "other", "answering")
		w.requireRunning("a/0", "a/1", "a/other")
		w.end("a/other")
		w.end("a/0")
		w.requireRunning("a/1", "a/2")
		w.endAll()
	})
}

func TestANamespaceWhosePeersDoNotAnswerDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestWork(t, Limits{PerPeer: 1, PerNamespace: 2, Slow: 1, Total: 4})
		for i := range 5 {
			w.hang("a", fmt.Sprint(i), fmt.Sprint(i))
		}
		w.hang("b", "x", "x")
		w.requireRunning("a/0", "a/1", "b/x")
		w.endAll()
	})
}

func TestNamespacesAndPeersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestWork(t, Limits{PerPeer: 1, PerNamespace: 1, Slow: 1, Total: 1})
		for _, key := range [][3]string{
			{"a", "1", "p"}, {"a", "2", "p"}, {"a", "3", "p"}, {"a", "4", "q"}, {"b", "1", "p"}, {"b", "2", "p"}, {"c", "1", "p"},
		} {
			w.hang(key[0], key[1], key[2])
			synctest.Wait()
		}
		w.endAll()
		require.Equal(t, []string{"a/1", "a/2", "b/1", "c/1", "a/4", "b/2", "a/3"}, w.started)
	})
}

func TestWhatWasSlowTheLastTimeDelaysOnlyWhatIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestWork(t, Limits{PerPeer: 2, PerNamespace: 2, Slow: 1, Total: 2})
		for i := range 3 {
			w.hang("a", fmt.Sprint(i), "p")
		}
		time.Sleep(slowAfter + time.Millisecond)
		w.end("a/0", "a/1")
		time.Sleep(slowAfter + time.Millisecond)
		w.end("a/2")
		for i := range 3 {
			w.hang("a", fmt.Sprint(i), "p")
		}
		w.requireRunning("a/0")
		w.hang("a", "quick", "p")
		w.requireRunning("a/0", "a/quick")
		w.end("a/0", "a/1", "a/2", "a/quick")
		w.hang("a", "0", "p")
		w.hang("a", "1", "p")
		w.requireRunning("a/0", "a/1") // both were quick this time
		w.endAll()
	})
}

func TestWorkForAnObjectDoesNotRunTwiceAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		executor := NewExecutor(DefaultLimits())
		object := types.NamespacedName{Namespace: "a", Name: "x"}
		runs, again := 0, make(chan struct{})
		work := func() { runs++; <-again }
		executor.Go(object, "p", work, func() {})
		executor.Go(object, "p", work, func() { t.Error("the second work ended") })
		synctest.Wait()
		close(again)
		synctest.Wait()
		require.Equal(t, 1, runs)
		ended := false
		executor.Go(object, "p", work, func() { ended = true })
		synctest.Wait()
		require.True(t, runs == 2 && ended, "%d runs, want 2; ended: %t", runs, ended)
	})
}

func TestNothingIsStoredWhenAllWorkHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		executor := NewExecutor(Limits{PerPeer: 1, PerNamespace: 2, Slow: 2, Total: 3})
		done := 0
		var mutex sync.Mutex
		for i := range 1000 {
			object := types.NamespacedName{Namespace: fmt.Sprint(i % 7), Name: fmt.Sprint(i)}
			executor.Go(object, fmt.Sprint(i%11), func() {
				time.Sleep(time.Duration(i%3) * time.Millisecond)
				mutex.Lock()
				defer mutex.Unlock()
				done++
			}, func() {})
		}
		executor.finished.Wait()
		require.Equal(t, 1000, done)
		for _, turns := range []*turns{executor.quickTurns, executor.slowTurns} {
			require.True(t, len(turns.namespaces)+len(turns.order)+turns.running == 0, "%+v remains", turns)
		}
		require.True(t, len(executor.active)+len(executor.slow) == 0, "%d objects active, %d slow, want none", len(executor.active), len(executor.slow))
	})
}
