package kube

import (
	"context"
	"errors"
	"testing"
)

func TestNamespaceCacheComputesOncePerNamespaceUntilItIsInvalidated(t *testing.T) {
	computed := map[string]int{}
	c := NewNamespaceCache(func(_ context.Context, namespace string) (int, error) {
		computed[namespace]++
		return computed[namespace], nil
	})
	want := func(namespace string, value int) {
		t.Helper()
		if got, err := c.Get(t.Context(), namespace); got != value || err != nil {
			t.Errorf("%s: got %d, %v, want %d", namespace, got, err, value)
		}
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
	if got, err := c.Get(t.Context(), "a"); got != "new" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestNamespaceCacheStoresNoErrors(t *testing.T) {
	failing := errors.New("the cache is not started")
	c := NewNamespaceCache(func(context.Context, string) (int, error) { return 1, failing })
	if _, err := c.Get(t.Context(), "a"); !errors.Is(err, failing) {
		t.Fatalf("error %v", err)
	}
	failing = nil
	if got, err := c.Get(t.Context(), "a"); got != 1 || err != nil {
		t.Errorf("got %d, %v", got, err)
	}
}
