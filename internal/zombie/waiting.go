package zombie

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// checkExternallyManaged finds unfinished Jobs of another controller. What it means by their
// status is not known here, so no later rule judges whether they make progress.
func checkExternallyManaged(f *jobFacts) (Finding, bool) {
	manager, external := f.externalManager()
	if !external || !f.isUnfinished() {
		return Finding{}, false
	}
	return f.findingByAge(f.thresholds.ExternallyManaged, f.creationTime(), ReasonExternallyManaged, manager,
		"managed by %s, and not finished since its creation at %s", manager, formatTime(f.creationTime()))
}

// checkSuspendedTooLong finds Jobs that wait for somebody to resume them.
func checkSuspendedTooLong(f *jobFacts) (Finding, bool) {
	_, external := f.externalManager()
	if !f.isSuspended() || !f.isUnfinished() || external {
		return Finding{}, false
	}
	since, noted := f.suspensionChangeTime(corev1.ConditionTrue)
	if !noted {
		since = f.lastEditTime()
	}
	return f.findingByAge(f.thresholds.SuspendedTooLong, since, ReasonSuspendedTooLong, "", "suspended since %s", formatTime(since))
}

// suspensionChangeTime is since when the Job is suspended, or not, as far as the Job
// controller has taken note of that. If it has not, the Job was edited since.
func (f *jobFacts) suspensionChangeTime(to corev1.ConditionStatus) (at time.Time, noted bool) {
	for i := range f.Status.Conditions {
		if c := &f.Status.Conditions[i]; c.Type == batchv1.JobSuspended {
			if c.Status == to {
				return f.firstKnownTime(c.LastTransitionTime.Time), true
			}
			return laterTime(c.LastTransitionTime.Time, f.lastEditTime()), true
		}
	}
	return time.Time{}, false
}

// checkNeverStarted finds Jobs that the Job controller has not taken up.
func checkNeverStarted(f *jobFacts) (Finding, bool) {
	if !f.isExpectedToProgress() || f.isStarted() {
		return Finding{}, false
	}
	since, noted := f.suspensionChangeTime(corev1.ConditionFalse)
	if !noted {
		since = f.creationTime()
	}
	return f.findingByAge(f.thresholds.NeverStarted, since, ReasonNeverStarted, "", "to be started since %s, and has no startTime", formatTime(since))
}

// checkPausedByParallelism finds Jobs that wait for somebody to raise parallelism.
func checkPausedByParallelism(f *jobFacts) (Finding, bool) {
	if !f.isExpectedToProgress() || !f.hasZeroParallelism() {
		return Finding{}, false
	}
	since := laterTime(f.startTime(), f.lastEditTime())
	return f.findingByAge(f.thresholds.PausedByParallelism, since, ReasonPausedByParallelism, "",
		"parallelism is 0, and was last changed at %s or before", formatTime(since))
}
