package kube

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestOnlyTheStoredVersionOfAnObjectIsFresh(t *testing.T) {
	stored := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "1"}}
	c := fake.NewClientBuilder().WithObjects(stored).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			_, isMetadata := object.(*metav1.PartialObjectMetadata)
			require.True(t, isMetadata, "read a %T, want the metadata only", object)
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
				require.True(t, (err != nil) == (row.stale && isLast), "object %d: %v", i, err)
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
		require.ErrorIs(t, read.assertFresh(t.Context(), clock, api, api, object), want)
	}
	assert(old, nil)
	update(t, api, object)
	require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(old), object))
	assert(object, nil) // the version of the own write is newer than the list
	clock.SetTime(clock.Now().Add(maxListingAge))
	assert(old, ErrStale)
}

func newConfigMap(uid, version string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns", UID: types.UID(uid), ResourceVersion: version}}
}

func TestTheNewerOfWrittenAndCachedIsUsed(t *testing.T) {
	for title, test := range map[string]struct {
		written, cached *corev1.ConfigMap
		want            string
	}{
		"nothing was written":         {cached: newConfigMap("1", "5"), want: "5"},
		"the cache is behind":         {written: newConfigMap("1", "10"), cached: newConfigMap("1", "9"), want: "10"},
		"the cache has caught up":     {written: newConfigMap("1", "10"), cached: newConfigMap("1", "10"), want: "10"},
		"the cache is ahead":          {written: newConfigMap("1", "10"), cached: newConfigMap("1", "11"), want: "11"},
		"another object has the name": {written: newConfigMap("1", "10"), cached: newConfigMap("2", "9"), want: "9"},
	} {
		t.Run(title, func(t *testing.T) {
			written := NewWriteCache[*corev1.ConfigMap]()
			if test.written != nil {
				written.Record(test.written)
			}
			require.Equal(t, test.want, written.Newest(test.cached).ResourceVersion)
		})
	}
}

func TestTheCacheEndsTheNeedForWhatWasWritten(t *testing.T) {
	informers := &informertest.FakeInformers{Scheme: scheme.Scheme}
	informer := require.Call(informers.FakeInformerFor(t.Context(), &corev1.ConfigMap{})).Succeeds(t)
	written := NewWriteCache[*corev1.ConfigMap]()
	require.NoError(t, written.Follow(t.Context(), informers, &corev1.ConfigMap{}))
	written.Record(newConfigMap("1", "10"))
	for _, cached := range []struct {
		object *corev1.ConfigMap
		kept   int
	}{
		{newConfigMap("1", "9"), 1},
		{newConfigMap("2", "11"), 1}, // another object had the name
		{newConfigMap("1", "10"), 0},
		{newConfigMap("1", "12"), 0},
	} {
		informer.Update(cached.object, cached.object)
		assert.Equal(t, fmt.Sprint("objects after ", cached.object.UID, " ", cached.object.ResourceVersion), cached.kept, len(written.written.entries))
	}
}

// After etcd was restored from a backup, versions are lower than before.
func TestAWrittenObjectIsForgottenAfterAMinute(t *testing.T) {
	now := time.Now()
	written := NewWriteCache[*corev1.ConfigMap]()
	written.now = func() time.Time { return now }
	written.Record(newConfigMap("1", "10"))
	now = now.Add(maxWriteAge - time.Second)
	require.Equal(t, "10", written.Newest(newConfigMap("1", "3")).ResourceVersion)
	now = now.Add(time.Second)
	require.Equal(t, "3", written.Newest(newConfigMap("1", "3")).ResourceVersion)
}

func TestWrittenObjectsAtRestAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		written := NewWriteCache[*corev1.ConfigMap]()
		written.Record(newConfigMap("1", "10"))
		time.Sleep(maxWriteAge - time.Second)
		other := newConfigMap("2", "11")
		other.Name = "b"
		written.Record(other)
		for _, want := range []int{2, 1, 0} {
			got := 0
			written.written.Each(func(types.NamespacedName, types.UID, writtenObject[*corev1.ConfigMap]) bool {
				got++
				return true
			})
			require.Equal(t, want, got)
			time.Sleep(maxWriteAge)
			synctest.Wait()
		}
	})
}

func TestLargeObjectsAreNotRemembered(t *testing.T) {
	written := NewWriteCache[*corev1.ConfigMap]()
	for title, large := range map[string]*corev1.ConfigMap{
		"a large object":    {Data: map[string]string{"a": strings.Repeat("x", LargeBytes)}},
		"large annotations": {ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": strings.Repeat("x", LargeBytes)}}},
	} {
		large.Namespace, large.Name, large.ResourceVersion = "ns", "a", "2"
		written.Record(large)
		cached := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", ResourceVersion: "1"}}
		require.True(t, written.Newest(cached).ResourceVersion == "1", "%s is remembered", title)
	}
}

func podWithUID(name string, uid types.UID) client.Object {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: uid}}
}

func TestAStoredValueBelongsToOneUID(t *testing.T) {
	first, second := podWithUID("a", "1"), podWithUID("a", "2")
	s := NewStore[int]()
	s.Update(first, func(v *int) { *v += 7 })
	requireStored := func(object client.Object, want int, wantFound bool) {
		t.Helper()
		v, found := s.Get(object)
		require.True(t, v == want && found == wantFound, "%d, found: %t, want %d, %t", v, found, want, wantFound)
	}
	requireStored(first, 7, true)
	requireStored(second, 0, false)
	s.Delete(second)
	requireStored(first, 7, true)
	s.Update(second, func(v *int) { *v++ })
	requireStored(second, 1, true)
	requireStored(first, 0, false)
}

func TestConcurrentUpdatesOfAStoredValueAllCount(t *testing.T) {
	s := NewStore[int]()
	var updates sync.WaitGroup
	for range 100 {
		updates.Go(func() { s.Update(podWithUID("a", "1"), func(v *int) { *v++ }) })
	}
	updates.Wait()
	v, _ := s.Get(podWithUID("a", "1"))
	require.Equal(t, 100, v)
}

func TestTrimObject(t *testing.T) {
	queue := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "orders", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}}}
	queue.Status.Conditions = append(make([]metav1.Condition, 0, 4), metav1.Condition{Type: v1alpha1.ConditionReady})
	want := queue.DeepCopy()
	want.ManagedFields = nil

	object := require.Call(TrimObject(queue)).Succeeds(t)
	trimmed := object.(*v1alpha1.Queue)
	require.Equal(t, want, trimmed)
	require.Equal(t, len(trimmed.Status.Conditions), cap(trimmed.Status.Conditions))
}

func TestOfALargeObjectTheCacheKeepsFewFields(t *testing.T) {
	transform := TrimLarge(func(c *corev1.ConfigMap) { c.Data = nil })
	text := strings.Repeat("x", LargeBytes)
	many := map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedByValue, v1alpha1.LabelStep: "build"}
	for i := range 2000 {
		many[fmt.Sprintf("label-%03d", i)] = "value"
	}
	for title, row := range map[string]struct{ annotations, labels, data, want map[string]string }{
		"a small object": {
			annotations: map[string]string{"note": "n", corev1.LastAppliedConfigAnnotation: text}, data: map[string]string{"a": "b"},
			want: map[string]string{"note": "n"},
		},
		"a large object": {
			annotations: map[string]string{"note": "n", v1alpha1.AnnotationApproval: "{}"}, data: map[string]string{"a": text},
			want: map[string]string{v1alpha1.AnnotationApproval: "{}", annotationTrimmed: ""},
		},
		"large annotations": {
			annotations: map[string]string{"note": text, v1alpha1.AnnotationApproval: text, v1alpha1.AnnotationRun: "1"},
			want:        map[string]string{v1alpha1.AnnotationRun: "1", annotationTrimmed: ""},
		},
		"many labels": {labels: many, want: map[string]string{annotationTrimmed: ""}},
	} {
		t.Run(title, func(t *testing.T) {
			metadata := metav1.ObjectMeta{Annotations: row.annotations, Labels: row.labels}
			var object any = &corev1.ConfigMap{ObjectMeta: *metadata.DeepCopy(), Data: row.data}
			for range 2 { // an object of a list is transformed twice
				object = require.Call(transform(object)).Succeeds(t)
			}
			cached := object.(*corev1.ConfigMap)
			require.Equal(t, row.want, cached.Annotations)
			require.True(t, decision.MemoryOf(cached) <= LargeBytes/2, "the cache keeps %d bytes", decision.MemoryOf(cached))
			require.True(t, row.labels == nil || cached.Labels[v1alpha1.LabelStep] == "build", "the labels are %v", cached.Labels)
		})
	}
}
