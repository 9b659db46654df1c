package informer

import (
	"maps"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/yardmaster/yardmaster/test/require"
)

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
