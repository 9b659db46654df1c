package informer

import (
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

func TestAWatchThatIsStoppedLeavesNoGoroutineWithAnEventThatNobodyTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // it fails when goroutines are left
		source := watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: 1})
		source.Add(&corev1.ConfigMap{})
		passesOn := watch.Filter(source, func(event watch.Event) (watch.Event, bool) { return event, true })
		lists := &unsteady{events: passesOn}
		events, err := newRecovering(lists, nil).WatchWithContext(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // it has taken the event, and waits for somebody to take it
		events.Stop()
	})
}
