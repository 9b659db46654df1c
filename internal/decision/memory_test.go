package decision

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/test/assert"
)

// The estimate differs from the memory that many copies of the object occupy by a third at most.
func TestMemoryOfAnObjectIsEstimated(t *testing.T) {
	text := func(bytes int) string { return strings.Repeat("x", bytes) }
	labels := func(count int) map[string]string {
		labels := map[string]string{}
		for i := range count {
			labels[fmt.Sprintf("key-%04d", i)] = "value"
		}
		return labels
	}
	for title, object := range map[string]*corev1.Pod{
		"an empty object":          {},
		"a time":                   {ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(time.Now())}},
		"a long text":              {Status: corev1.PodStatus{Message: text(100_000)}},
		"many empty containers":    {Spec: corev1.PodSpec{Containers: make([]corev1.Container, 100)}},
		"many labels":              {ObjectMeta: metav1.ObjectMeta{Labels: labels(1000)}},
		"a long label":             {ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{text(1000): text(3000)}}},
		"one label":                {ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}},
		"texts of different sizes": {Spec: corev1.PodSpec{Containers: []corev1.Container{{Args: []string{text(1), text(10), text(1000)}}}}},
	} {
		t.Run(title, func(t *testing.T) {
			const copies = 500
			kept := make([]*corev1.Pod, 0, copies)
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			for range copies {
				c := object.DeepCopy()
				c.Status.Message = strings.Clone(c.Status.Message) // copies share texts
				kept = append(kept, c)
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			estimated, used := MemoryOf(object), int(after.HeapAlloc-before.HeapAlloc)/copies
			t.Logf("estimated %d bytes, used %d", estimated, used)
			shared := 0 // the texts of the maps and lists, which copies share
			for key, value := range object.Labels {
				shared += len(key) + len(value)
			}
			for i := range object.Spec.Containers {
				for _, arg := range object.Spec.Containers[i].Args {
					shared += len(arg)
				}
			}
			if difference := estimated - shared - used; difference > used/3 || difference < -used/3 {
				t.Errorf("estimated %d bytes, of which %d are shared, used %d", estimated, shared, used)
			}
			runtime.KeepAlive(kept)
		})
	}
}

func TestAnObjectIsTooLargeBeyond128KiBAndOnceItsSpecWasDropped(t *testing.T) {
	const ownSize = 16 // of a text
	for title, test := range map[string]struct {
		bytes   int
		dropped bool
		want    bool
	}{
		"128 KiB":             {bytes: MaxSpecBytes - ownSize},
		"one byte more":       {bytes: MaxSpecBytes - ownSize + 1, want: true},
		"without its spec":    {dropped: true, want: true},
		"nothing of the kind": {},
	} {
		object := &metav1.ObjectMeta{}
		if test.dropped {
			object.Annotations = map[string]string{AnnotationTooLarge: ""}
		}
		assert.Equal(t, title, test.want, IsTooLarge(object, strings.Repeat("x", test.bytes)))
	}
}
