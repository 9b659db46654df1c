package kube

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/yardmaster/yardmaster/test/require"
)

func TestOnlyTheStoredVersionOfAnObjectIsFresh(t *testing.T) {
	stored := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "1"}}
	c := fake.NewClientBuilder().WithObjects(stored).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if _, ok := object.(*metav1.PartialObjectMetadata); !ok {
				t.Errorf("read a %T, want the metadata only", object)
			}
			return c.Get(ctx, key, object, options...)
		},
	}).Build()
	for title, test := range map[string]struct {
		change func(*corev1.Pod)
		want   func(error) bool
	}{
		"the stored version":               {func(*corev1.Pod) {}, func(err error) bool { return err == nil }},
		"an older version":                 {func(p *corev1.Pod) { p.ResourceVersion = "1" }, func(err error) bool { return errors.Is(err, ErrStale) }},
		"an earlier object with that name": {func(p *corev1.Pod) { p.UID = "0" }, func(err error) bool { return errors.Is(err, ErrStale) }},
		"a deleted object":                 {func(p *corev1.Pod) { p.Name = "b" }, apierrors.IsNotFound},
	} {
		t.Run(title, func(t *testing.T) {
			pod := stored.DeepCopy()
			pod.ResourceVersion = "999"
			test.change(pod)
			err := AssertFresh(t.Context(), c, c, pod)
			require.True(t, test.want(err), "got %v", err)
			require.True(t, err == nil || isStaleError(err), "%v is not retried as stale", err)
		})
	}
}

func TestAFailedReadIsNotStale(t *testing.T) {
	unavailable := errors.New("connection refused")
	c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return unavailable
		},
	}).Build()
	err := AssertFresh(t.Context(), c, c, &corev1.Pod{})
	require.True(t, errors.Is(err, unavailable) && !isStaleError(err), "got %v", err)
}

func TestOneListProvesForASecondThatManyObjectsAreFresh(t *testing.T) {
	const objects = 30
	for title, row := range map[string]struct {
		change      func(t *testing.T, api client.Client, object *corev1.ConfigMap)
		wait        time.Duration
		truncated   bool
		lists, gets int
		stale       bool // the last object
	}{
		"nothing changes":                          {lists: 1},
		"an object is updated before the list":     {change: update, lists: 1, gets: 1, stale: true},
		"an object is deleted before the list":     {change: remove, lists: 1, gets: 1, stale: true},
		"an object is replaced by one of its name": {change: replace, lists: 1, gets: 1, stale: true},
		"a second passes before the last object":   {wait: maxListingAge, lists: 2},
		"the clock goes back by an hour":           {wait: -time.Hour, lists: 2},
		"there are more objects than one answer":   {truncated: true, lists: 1, gets: objects},
	} {
		t.Run(title, func(t *testing.T) {
			clock := clocktesting.NewFakePassiveClock(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC))
			builder := fake.NewClientBuilder()
			var observed []*corev1.ConfigMap
			for i := range objects {
				observed = append(observed, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint(i), UID: "old"}})
				builder.WithObjects(observed[i])
			}
			api, lists, gets := builder.Build(), 0, 0
			for _, object := range observed {
				require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(object), object))
			}
			live := interceptor.NewClient(api, interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
					lists++
					err := c.List(ctx, list, options...)
					if row.truncated {
						list.SetContinue("more")
					}
					return err
				},
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
					gets++
					return c.Get(ctx, key, object, options...)
				},
			})
			if row.change != nil {
				row.change(t, api, observed[objects-1].DeepCopy())
			}
			read := &listings{}
			for i, object := range observed {
				isLast := i == objects-1
				if isLast {
					clock.SetTime(clock.Now().Add(row.wait))
				}
				err := read.assertFresh(t.Context(), clock, live, api, object)
				if isStale := err != nil; isStale != (row.stale && isLast) {
					t.Errorf("object %d: %v", i, err)
				}
			}
			require.True(t, lists == row.lists && gets == row.gets, "%d lists and %d gets, want %d and %d", lists, gets, row.lists, row.gets)
		})
	}
}

func update(t *testing.T, api client.Client, object *corev1.ConfigMap) {
	t.Helper()
	object.Data = map[string]string{"a": "b"}
	require.NoError(t, api.Update(t.Context(), object))
}

func remove(t *testing.T, api client.Client, object *corev1.ConfigMap) {
	t.Helper()
	require.NoError(t, api.Delete(t.Context(), object))
}

func replace(t *testing.T, api client.Client, object *corev1.ConfigMap) {
	t.Helper()
	remove(t, api, object)
	object.UID, object.ResourceVersion = "new", ""
	require.NoError(t, api.Create(t.Context(), object))
}

func TestAnUpdateAfterTheListIsFoundWithinASecondAndAnOwnOneIsNoConflict(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC))
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}}
	api := fake.NewClientBuilder().WithObjects(object).Build()
	require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(object), object))
	read, old := &listings{}, object.DeepCopy()
	assert := func(object client.Object, want error) {
		t.Helper()
		if err := read.assertFresh(t.Context(), clock, api, api, object); !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	assert(old, nil)
	update(t, api, object)
	require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(old), object))
	assert(object, nil) // the version of the own write is newer than the list
	clock.SetTime(clock.Now().Add(maxListingAge))
	assert(old, ErrStale)
}
