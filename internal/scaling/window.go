package scaling

import (
	"slices"
	"time"
)

// spansPerWindow is into how many parts the longer of the windows is divided. A window is longer
// than it should be by at most one part.
const spansPerWindow = 8

// RecommendationSpan is what was wanted in a part of a window.
type RecommendationSpan struct {
	Start    time.Time
	Min, Max int32
}

// Recommendations are what was wanted lately, the oldest first.
type Recommendations []RecommendationSpan

// longestWindow of the policy's windows.
func longestWindow(p Settings) time.Duration { return max(p.ScaleUp.Window, p.ScaleDown.Window) }

// addRecommendation puts what is wanted now into the last span, or begins a new one, and forgets what
// is older than the window.
func (w *Recommendations) addRecommendation(now time.Time, want int32, window time.Duration) {
	*w = slices.DeleteFunc(*w, func(s RecommendationSpan) bool { return s.Start.After(now) })
	if last := len(*w) - 1; last >= 0 && now.Sub((*w)[last].Start) < window/spansPerWindow {
		(*w)[last].Min, (*w)[last].Max = min((*w)[last].Min, want), max((*w)[last].Max, want)
	} else {
		*w = append(*w, RecommendationSpan{Start: now, Min: want, Max: want})
	}
	over := 0
	for over < len(*w)-1 && !w.overlapsWindow(over, now, window) {
		over++
	}
	*w = slices.Delete(*w, 0, max(over, len(*w)-spansPerWindow-2))
}

// replicasToKeep is how many of the workers there are were wanted in the window: all, as long as
// nobody knows what was wanted at its beginning.
func (w Recommendations) replicasToKeep(in Observation, window time.Duration) int32 {
	if len(w) == 0 || w[0].Start.After(in.Now.Add(-window)) {
		return in.Replicas
	}
	return min(w.highestSince(in.Now, window), in.Replicas, effectiveMax(in.Settings))
}

// lowestSince that was wanted in the window.
func (w Recommendations) lowestSince(now time.Time, window time.Duration) int32 {
	lowest := int32(maxReplicas)
	for i, span := range w {
		if w.overlapsWindow(i, now, window) {
			lowest = min(lowest, span.Min)
		}
	}
	return lowest
}

// highestSince that was wanted in the window.
func (w Recommendations) highestSince(now time.Time, window time.Duration) int32 {
	highest := int32(0)
	for i, span := range w {
		if w.overlapsWindow(i, now, window) {
			highest = max(highest, span.Max)
		}
	}
	return highest
}

// overlapsWindow tells whether a span reaches into the window: it ends where the next begins.
func (w Recommendations) overlapsWindow(i int, now time.Time, window time.Duration) bool {
	return i == len(w)-1 || w[i+1].Start.After(now.Add(-window))
}
