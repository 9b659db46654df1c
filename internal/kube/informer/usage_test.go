package informer

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/yardmaster/yardmaster/test/require"
)

func TestTheNamespacesWithMostBytesInTheCacheAreReported(t *testing.T) {
	relay := &eventRelay{events: make(chan watch.Event, 100), firstListDone: make(chan struct{}), knownObjects: map[string]knownObject{}}
	configMap := func(namespace int, size int) *corev1.ConfigMap {
		return &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprintf("ns-%02d", namespace), Name: "a"},
			BinaryData: map[string][]byte{"a": make([]byte, size)},
		}
	}
	base := newKnownObject(configMap(1, 0))
	base.release()
	expect := func(after string, sizes map[int]int) {
		t.Helper()
		var want strings.Builder
		fmt.Fprintln(&want, "# HELP yardmaster_cache_namespace_bytes Estimated memory of the cached objects of a namespace, for the ten namespaces with the most.")
		fmt.Fprintln(&want, "# TYPE yardmaster_cache_namespace_bytes gauge")
		for namespace := range 100 {
			if size, found := sizes[namespace]; found {
				fmt.Fprintf(&want, "yardmaster_cache_namespace_bytes{namespace=\"ns-%02d\"} %d\n", namespace, size+base.bytes)
			}
		}
		if len(sizes) == 0 {
			want.Reset()
		}
		if err := testutil.CollectAndCompare(cached, strings.NewReader(want.String()), "yardmaster_cache_namespace_bytes"); err != nil {
			t.Errorf("after %s: %v", after, err)
		}
	}
	send := func(err error) {
		t.Helper()
		require.NoError(t, err)
	}
	send(relay.Add(configMap(1, 1000)))
	send(relay.Add(configMap(2, 2000)))
	expect("creation", map[int]int{1: 1000, 2: 2000})
	send(relay.Update(configMap(1, 10)))
	send(relay.Delete(configMap(2, 2000)))
	expect("a change and a deletion", map[int]int{1: 10})
	var list []any
	most := map[int]int{}
	for i := range 30 {
		list = append(list, configMap(i, 10*i))
		if i >= 20 {
			most[i] = 10 * i
		}
	}
	for range 2 { // a list of known objects changes nothing
		send(relay.Replace(list, "1"))
		expect("a list", most)
	}
	relay.releaseAll()
	expect("the end of the informer", map[int]int{})
}
