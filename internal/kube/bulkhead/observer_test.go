package bulkhead

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

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
		if got, found, err := o.observe("v1"); !found || got != want+1 || err != nil {
			t.Fatalf("%d, %t, %v, want %d", got, found, err, want+1)
		}
	}
}

func TestAnObservationOfAnotherSubjectIsMadeAgain(t *testing.T) {
	o := newTestObserver(t)
	o.start("two workers", o.count)
	o.awaitRequest()
	o.start("three workers", o.count)
	o.awaitRequest()
	if got, found, _ := o.observe("three workers"); !found || got != 2 {
		t.Errorf("%d, %t, want the second observation", got, found)
	}
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
		if got, found, _ := o.observe("new"); !found || got != 1 {
			t.Errorf("%d, %t, want the first new observation", got, found)
		}
	})
}

func TestAnErrorOrPanicOfAnObservationIsThatOfTheReconciliation(t *testing.T) {
	o := newTestObserver(t)
	want := errors.New("refused")
	o.start("v1", func() (int, error) { return 0, want })
	o.awaitRequest()
	if _, found, err := o.observe("v1"); !found || !errors.Is(err, want) {
		t.Errorf("%t, %v, want %v", found, err, want)
	}
	o.start("v1", func() (int, error) { panic("out of range") })
	o.awaitRequest()
	defer func() {
		if reason, _ := recover().(string); !strings.Contains(reason, "out of range") || !strings.Contains(reason, "observer_test.go") {
			t.Errorf("panic %q, want the reason and the place", reason)
		}
	}()
	_, found, _ := o.observe("v1")
	t.Errorf("no panic, found: %t", found)
}

// The test calls the queue as controller-runtime does after each reconciliation.
func TestAnObjectThatFailsEachTimeKeepsItsBackoff(t *testing.T) {
	o := newTestObserver(t)
	request := reconcile.Request{NamespacedName: testObject}
	for failures := 1; failures <= 5; failures++ {
		o.start("v1", o.count)
		o.queue.Forget(request) // the reconciliation ends without an error
		o.awaitRequest()
		if _, found, _ := o.observe("v1"); !found {
			t.Fatal("no observation")
		}
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
	if err := NewObserver[int](DefaultLimits()).EnqueueTo(t.Context(), queue); err == nil {
		t.Error("no error")
	}
}

func TestADeletedObjectLeavesNothing(t *testing.T) {
	o := newTestObserver(t)
	o.start("v1", o.count)
	o.awaitRequest()
	o.Forget(testObject)
	require.Equal(t, 0, len(o.results))
}
