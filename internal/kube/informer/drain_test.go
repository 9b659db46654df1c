package informer

import (
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/yardmaster/yardmaster/test/require"
)

func TestAStoppedWatchLeaksNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // fails if a goroutine remains
		source := watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: 1})
		source.Add(&corev1.ConfigMap{})
		forwarding := watch.Filter(source, func(event watch.Event) (watch.Event, bool) { return event, true })
		lists := &flakyListerWatcher{events: forwarding}
		events, err := newRecoveryListerWatcher(lists, nil, nil).WatchWithContext(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		synctest.Wait() // the forwarding goroutine blocks on the event
		events.Stop()
	})
}
