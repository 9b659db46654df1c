package kube

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func requestFor(namespace, name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

func TestObjectsOfANamespaceDoNotWaitForAllObjectsOfAnother(t *testing.T) {
	options := ControllerOptions(1)
	queue := options.NewQueue("test", options.RateLimiter)
	defer queue.ShutDown()
	for i := range 1000 {
		queue.Add(requestFor("crowd", fmt.Sprint(i)))
	}
	queue.Add(requestFor("other", "a"))
	queue.Add(requestFor("third", "x"))
	queue.Add(requestFor("other", "b"))
	var got []string
	for range 6 {
		request, _ := queue.Get()
		got = append(got, request.String())
		queue.Done(request)
	}
	if diff := cmp.Diff([]string{"crowd/0", "other/a", "third/x", "crowd/1", "other/b", "crowd/2"}, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if queue.Len() != 997 {
		t.Errorf("%d requests wait, want 997", queue.Len())
	}
}

func TestARequestThatWaitsIsNotAddedAgain(t *testing.T) {
	options := ControllerOptions(1)
	queue := options.NewQueue("test", options.RateLimiter)
	defer queue.ShutDown()
	queue.Add(requestFor("a", "a"))
	queue.Add(requestFor("a", "a"))
	if queue.Len() != 1 {
		t.Errorf("%d requests wait, want 1", queue.Len())
	}
}

func TestWaitingObjectsAreNotReconciledAfterTheOperatorStops(t *testing.T) {
	options := ControllerOptions(1)
	queue := options.NewQueue("test", options.RateLimiter)
	queue.Add(requestFor("a", "a"))
	queue.Add(requestFor("a", "b"))
	queue.ShutDown()
	if request, shutdown := queue.Get(); !shutdown {
		t.Errorf("%s is returned", request)
	}
}
