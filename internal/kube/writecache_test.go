package kube

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"

	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
)

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
	informer, err := informers.FakeInformerFor(t.Context(), &corev1.ConfigMap{})
	require.NoError(t, err)
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
