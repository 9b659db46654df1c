package zombie

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// externallyManaged finds unfinished Jobs of another controller. What it means by their
// status is not known here, so no later rule judges whether they make progress.
func externallyManaged(f *facts) (Finding, bool) {
	manager, external := f.external()
	if !external || !f.unfinished() {
		return Finding{}, false
	}
	return f.grown(f.thresholds.ExternallyManaged, f.created(), ExternallyManaged, manager,
		"managed by %s, and not finished since its creation at %s", manager, format(f.created()))
}

// suspendedTooLong finds Jobs that wait for somebody to resume them.
func suspendedTooLong(f *facts) (Finding, bool) {
	_, external := f.external()
	if !f.suspended() || !f.unfinished() || external {
		return Finding{}, false
	}
	since, noted := f.suspensionChanged(corev1.ConditionTrue)
	if !noted {
		since = f.edited()
	}
	return f.grown(f.thresholds.SuspendedTooLong, since, SuspendedTooLong, "", "suspended since %s", format(since))
}

// suspensionChanged is since when the Job is suspended, or not, as far as the Job
// controller has taken note of that. If it has not, the Job was edited since.
func (f *facts) suspensionChanged(to corev1.ConditionStatus) (at time.Time, noted bool) {
	for i := range f.Status.Conditions {
		if c := &f.Status.Conditions[i]; c.Type == batchv1.JobSuspended {
			if c.Status == to {
				return f.first(c.LastTransitionTime.Time), true
			}
			return latest(c.LastTransitionTime.Time, f.edited()), true
		}
	}
	return time.Time{}, false
}

// neverStarted finds Jobs that the Job controller has not taken up.
func neverStarted(f *facts) (Finding, bool) {
	if !f.ours() || f.started() {
		return Finding{}, false
	}
	since, noted := f.suspensionChanged(corev1.ConditionFalse)
	if !noted {
		since = f.created()
	}
	return f.grown(f.thresholds.NeverStarted, since, NeverStarted, "", "to be started since %s, and has no startTime", format(since))
}

// pausedByParallelism finds Jobs that wait for somebody to raise parallelism.
func pausedByParallelism(f *facts) (Finding, bool) {
	if !f.ours() || !f.paused() {
		return Finding{}, false
	}
	since := latest(f.startTime(), f.edited())
	return f.grown(f.thresholds.PausedByParallelism, since, PausedByParallelism, "",
		"parallelism is 0, and was last changed at %s or before", format(since))
}
