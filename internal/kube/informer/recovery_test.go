package informer

import (
	"context"
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/yardmaster/yardmaster/test/require"
)

// flakyListerWatcher fails if it has a failure.
type flakyListerWatcher struct {
	failure error
	events  watch.Interface
}

func (u *flakyListerWatcher) List(metav1.ListOptions) (runtime.Object, error) {
	return &metav1.List{}, u.failure
}

func (u *flakyListerWatcher) Watch(metav1.ListOptions) (watch.Interface, error) {
	return u.events, u.failure
}

func TestARecoveryLastsFromTheFirstFailureToTheNextWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var recoveries []time.Duration
		server := &flakyListerWatcher{events: watch.NewFake()}
		r := newRecoveryListerWatcher(server, func(d time.Duration) { recoveries = append(recoveries, d) }, nil)
		attempt := func(failure error) {
			server.failure = failure
			if _, err := r.WatchWithContext(t.Context(), metav1.ListOptions{}); !errors.Is(err, failure) {
				t.Fatal(err)
			}
		}
		attempt(nil) // before any failure
		for range 3 {
			attempt(errors.New("refused"))
			time.Sleep(time.Minute)
		}
		server.failure = nil
		if _, err := r.ListWithContext(t.Context(), metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		attempt(nil)
		attempt(nil)
		if want := 3*time.Minute + time.Second; len(recoveries) != 1 || recoveries[0] != want {
			t.Errorf("recoveries %v, want one of %v", recoveries, want)
		}
	})
}

func TestStoppingAnInformerIsNotAFailure(t *testing.T) {
	r := newRecoveryListerWatcher(&flakyListerWatcher{failure: context.Canceled}, nil, nil)
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if _, err := r.ListWithContext(stopped, metav1.ListOptions{}); err == nil || !r.failedSince.IsZero() {
		t.Errorf("error %v, failed since %v", err, r.failedSince)
	}
}

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

// restore stops the server and starts it with an earlier state.
func (s *fakeAPIServer) restore(change func()) {
	s.mu.Lock()
	objects, version := maps.Clone(s.objects), s.version
	s.mu.Unlock()
	change()
	s.stop()
	s.mu.Lock()
	s.objects, s.version = objects, version
	s.mu.Unlock()
	s.start()
}

func TestARestoreOfEtcdIsDetectedWhenAWatchReconnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, detector := newFakeAPIServer(), NewRestoreDetector()
		s.putConfigMap("kept", "1")
		recorder := startInformer(t, detector.NewInformer(s, &corev1.ConfigMap{}, 0, cache.Indexers{}))
		recorder.expectEvents(t, "added kept=1")
		s.restore(func() {
			s.putConfigMap("lost", "1")
			s.putConfigMap("kept", "2")
			s.putConfigMap("kept", "3")
			recorder.expectEvents(t, "added lost=1", "changed kept=2", "changed kept=3")
		})
		require.ErrorContains(t, detector.Start(t.Context()), "its resourceVersion is 3 and was 5")
	})
}

// listVersion is a source whose lists have this resourceVersion.
type listVersion string

func (v listVersion) List(metav1.ListOptions) (runtime.Object, error) {
	return &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: string(v)}}, nil
}

func (listVersion) Watch(metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil }

func TestOnlyALowerResourceVersionIsARestore(t *testing.T) {
	for known, want := range map[string]bool{"": false, "0": false, "9": false, "10": false, "11": true, "100": true, "opaque": false} {
		t.Run("known "+known, func(t *testing.T) {
			detector := NewRestoreDetector()
			r := newRecoveryListerWatcher(listVersion("10"), nil, detector.report)
			for range 2 { // each of several informers detects it
				if err := r.checkHistory(t.Context(), known); (err != nil) != want {
					t.Errorf("error %v, want one: %t", err, want)
				}
			}
			require.Equal(t, want, len(detector.detected) > 0)
		})
	}
}
