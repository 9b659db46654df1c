package kube

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func configMap(uid, version string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns", UID: types.UID(uid), ResourceVersion: version}}
}

func TestTheNewerOfWrittenAndCachedIsUsed(t *testing.T) {
	tests := map[string]struct {
		written, cached *corev1.ConfigMap
		want            string
	}{
		"nothing was written":               {cached: configMap("1", "5"), want: "5"},
		"the cache is behind":               {written: configMap("1", "10"), cached: configMap("1", "9"), want: "10"},
		"the cache has caught up":           {written: configMap("1", "10"), cached: configMap("1", "10"), want: "10"},
		"the cache is ahead":                {written: configMap("1", "10"), cached: configMap("1", "11"), want: "11"},
		"another object has taken the name": {written: configMap("1", "10"), cached: configMap("2", "9"), want: "9"},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			latest := NewWriteCache[*corev1.ConfigMap]()
			if test.written != nil {
				latest.Record(test.written)
			}
			if got := latest.Newest(test.cached).ResourceVersion; got != test.want {
				t.Errorf("version %s, want %s", got, test.want)
			}
		})
	}
}

func TestWhatTheCacheShowsIsForgotten(t *testing.T) {
	latest := NewWriteCache[*corev1.ConfigMap]()
	latest.Record(configMap("1", "10"))
	latest.Newest(configMap("1", "10"))
	if len(latest.written) != 0 {
		t.Errorf("%d objects are kept", len(latest.written))
	}
	latest.Record(configMap("1", "12"))
	latest.Forget(types.NamespacedName{Namespace: "ns", Name: "a"})
	if len(latest.written) != 0 {
		t.Errorf("%d objects are kept of one that is gone", len(latest.written))
	}
}
