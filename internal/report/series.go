package report

import "github.com/yardmaster/yardmaster/internal/zombie"

// seriesState is what is known about the Jobs of one series. Jobs are listed by name, not by time,
// so a failed Job may be listed before the one that supersedes it.
type seriesState struct {
	// latest position of a Job that supersedes earlier failures.
	latest int64
	// superseding is false until there is such a Job.
	superseding bool
	// failed Jobs that no Job has superseded yet.
	failed []Entry
}

// isSuperseded reports whether a Job of a later position supersedes this one.
func (s *seriesState) isSuperseded(entry *Entry) bool {
	return s.superseding && entry.Series.Position < s.latest
}

// addToSeries records a Job in its series. It returns true if it keeps the entry until all Jobs are
// known, or has counted it, because a later Job supersedes its failure.
func (a *Aggregator) addToSeries(entry *Entry) bool {
	place := &entry.Series
	canBeSuperseded := place.Failed && entry.Finding.Reason.IsFailure()
	if place.Key == "" || !place.Supersedes && !canBeSuperseded {
		return false
	}
	state := a.series[place.Key]
	if state == nil {
		state = &seriesState{}
		a.series[place.Key] = state
	}
	if place.Supersedes && (!state.superseding || place.Position > state.latest) {
		state.superseding, state.latest = true, place.Position
		a.dropSuperseded(state)
	}
	if canBeSuperseded && state.isSuperseded(entry) {
		a.countSuperseded()
		return true
	}
	if canBeSuperseded {
		state.failed = append(state.failed, *entry)
	}
	return canBeSuperseded
}

func (a *Aggregator) dropSuperseded(state *seriesState) {
	var kept []Entry
	for i := range state.failed {
		if state.isSuperseded(&state.failed[i]) {
			a.countSuperseded()
		} else {
			kept = append(kept, state.failed[i])
		}
	}
	state.failed = kept
}

// countSuperseded counts a failed Job as healthy.
func (a *Aggregator) countSuperseded() { a.byCategory[zombie.CategoryHealthy]++ }

// settleSeries turns the failures that no Job supersedes into findings.
func (a *Aggregator) settleSeries() {
	for key, state := range a.series {
		for i := range state.failed {
			a.addFinding(state.failed[i])
		}
		state.failed = nil
		if !state.superseding {
			delete(a.series, key)
		}
	}
}
