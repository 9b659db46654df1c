package scaling

import (
	"slices"
	"time"
)

// spansPerWindow is the number of spans into which the longer window is divided. A window becomes longer by at most one
// span.
const spansPerWindow = 8

// RecommendationSpan is the range of recommendations in a part of a window.
type RecommendationSpan struct {
	Start    time.Time
	Min, Max int32
}

// Recommendations are recent recommendations, oldest first.
type Recommendations []RecommendationSpan

func longestWindow(p Settings) time.Duration { return max(p.ScaleUp.Window, p.ScaleDown.Window) }

// addRecommendation adds a recommendation to the last span or starts a new span, and drops spans older than the window.
func (w *Recommendations) addRecommendation(now time.Time, recommended int32, window time.Duration) {
	*w = slices.DeleteFunc(*w, func(s RecommendationSpan) bool { return s.Start.After(now) })
	if last := len(*w) - 1; last >= 0 && now.Sub((*w)[last].Start) < window/spansPerWindow {
		(*w)[last].Min, (*w)[last].Max = min((*w)[last].Min, recommended), max((*w)[last].Max, recommended)
	} else {
		*w = append(*w, RecommendationSpan{Start: now, Min: recommended, Max: recommended})
	}
	over := 0
	for over < len(*w)-1 && !w.overlapsWindow(over, now, window) {
		over++
	}
	*w = slices.Delete(*w, 0, max(over, len(*w)-spansPerWindow-2))
}

// replicasToKeep returns the number of workers that the recommendations of the window justify; the current number while
// the beginning of the window is unknown.
func (w Recommendations) replicasToKeep(in Observation, window time.Duration) int32 {
	if len(w) == 0 || w[0].Start.After(in.Now.Add(-window)) {
		return in.Replicas
	}
	_, highest := w.rangeSince(in.Now, window)
	return min(highest, in.Replicas, effectiveMax(in.Settings))
}

func (w Recommendations) rangeSince(now time.Time, window time.Duration) (lowest, highest int32) {
	lowest = maxReplicas
	for i, span := range w {
		if w.overlapsWindow(i, now, window) {
			lowest, highest = min(lowest, span.Min), max(highest, span.Max)
		}
	}
	return lowest, highest
}

// overlapsWindow reports whether a span overlaps the window. A span ends where the next span begins.
func (w Recommendations) overlapsWindow(i int, now time.Time, window time.Duration) bool {
	return i == len(w)-1 || w[i+1].Start.After(now.Add(-window))
}
