package schedule

import (
	"slices"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// countFailures counts the runs that ended since the last decision. A suspension ends the count: when the Schedule is resumed, its
// runs may fail as often again.
func (t *times) countFailures() {
	for i := range t.Runs {
		if t.Runs[i].IsFinished && t.wasActive(t.Runs[i].Name) {
			t.countEnd(&t.Runs[i])
		}
	}
	if t.spec.Suspend {
		t.status.Failures = 0
	}
}

// wasActive reports whether the last decision recorded a run as active.
func (t *times) wasActive(name string) bool {
	return slices.ContainsFunc(t.stored.ActiveRuns, func(run v1alpha1.ScheduledRun) bool { return run.Name == name })
}

func (t *times) countEnd(run *Run) {
	t.status.Failures++
	if run.HasSucceeded {
		t.status.Failures = 0
	}
}

// hasFailedTooOften reports whether so many runs in a row have failed that no time of the timetable starts.
func (t *times) hasFailedTooOften() bool {
	limit := t.spec.SuspendAfterFailures
	return limit != nil && t.status.Failures >= *limit
}

// isSuspended reports whether no time of the timetable or of a backfill starts.
func (t *times) isSuspended() bool { return t.spec.Suspend || t.hasFailedTooOften() }
