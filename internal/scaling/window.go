package scaling

import (
	"slices"
	"time"
)

// spans is into how many parts the longer of the windows is divided. A window is longer
// than it should be by at most one part.
const spans = 8

// Span is what was wanted in a part of a window.
type Span struct {
	Start       time.Time
	Least, Most int32
}

// Wants are what was wanted lately, the oldest first.
type Wants []Span

// longest of the policy's windows.
func longest(p Policy) time.Duration { return max(p.Up.Window, p.Down.Window) }

// add puts what is wanted now into the last span, or begins a new one, and forgets what
// is older than the window.
func (w *Wants) add(now time.Time, want int32, window time.Duration) {
	*w = slices.DeleteFunc(*w, func(s Span) bool { return s.Start.After(now) })
	if last := len(*w) - 1; last >= 0 && now.Sub((*w)[last].Start) < window/spans {
		(*w)[last].Least, (*w)[last].Most = min((*w)[last].Least, want), max((*w)[last].Most, want)
	} else {
		*w = append(*w, Span{Start: now, Least: want, Most: want})
	}
	over := 0
	for over < len(*w)-1 && !w.reaches(over, now, window) {
		over++
	}
	*w = slices.Delete(*w, 0, max(over, len(*w)-spans-2))
}

// keeps is how many of the workers there are were wanted in the window: all, as long as
// nobody knows what was wanted at its beginning.
func (w Wants) keeps(in Input, window time.Duration) int32 {
	if len(w) == 0 || w[0].Start.After(in.Now.Add(-window)) {
		return in.Replicas
	}
	return min(w.most(in.Now, window), in.Replicas, most(in.Policy))
}

// least that was wanted in the window.
func (w Wants) least(now time.Time, window time.Duration) int32 {
	lowest := int32(mostReplicas)
	for i, span := range w {
		if w.reaches(i, now, window) {
			lowest = min(lowest, span.Least)
		}
	}
	return lowest
}

// most that was wanted in the window.
func (w Wants) most(now time.Time, window time.Duration) int32 {
	highest := int32(0)
	for i, span := range w {
		if w.reaches(i, now, window) {
			highest = max(highest, span.Most)
		}
	}
	return highest
}

// reaches tells whether a span reaches into the window: it ends where the next begins.
func (w Wants) reaches(i int, now time.Time, window time.Duration) bool {
	return i == len(w)-1 || w[i+1].Start.After(now.Add(-window))
}
