package watch

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/internal/plugin/ui/view"
)

// The limits of the history, which is at most 10 MB.
const (
	maxHistories   = 300
	maxSamples     = 360
	sampleInterval = 5 * time.Second
)

type historyKey struct {
	kind *view.Kind
	types.NamespacedName
}

// history holds the load of the first maxHistories Queues and WorkerPools since the command started.
type history map[historyKey][]view.Sample

// add records the load of an object. Within sampleInterval, the new value replaces the previous value.
func (h history) add(kind *view.Kind, name types.NamespacedName, object any, now time.Time) {
	sample := view.NewSample(object, now)
	key := historyKey{kind, name}
	samples, known := h[key]
	if sample == nil || !known && len(h) >= maxHistories {
		return
	}
	if n := len(samples); n > 1 && now.Sub(samples[n-2].Time) < sampleInterval {
		samples[n-1] = *sample
		return
	}
	if len(samples) == maxSamples {
		samples = slices.Delete(samples, 0, 1)
	}
	h[key] = append(samples, *sample)
}

// History returns the load of a Queue or WorkerPool until now.
func (s *Store) History(entry *view.Entry) []view.Sample {
	s.mu.RLock()
	defer s.mu.RUnlock()
	samples := slices.Clone(s.history[historyKey{entry.Kind, types.NamespacedName{Namespace: entry.Namespace, Name: entry.Name}}])
	if n := len(samples); n > 0 {
		last := samples[n-1]
		last.Time = s.now().Truncate(sampleInterval)
		if last.Time.After(samples[n-1].Time) {
			samples = append(samples, last)
		}
	}
	return samples
}
