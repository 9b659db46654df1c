package jobreport

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// checkExternallyManaged finds unfinished Jobs of another controller. The meaning of their status
// is unknown here, so the later rules about progress do not apply to them.
func checkExternallyManaged(f *jobFacts) (Finding, bool) {
	manager, external := f.externalManager()
	if !external || !f.isUnfinished() {
		return Finding{}, false
	}
	return f.findingByAge(f.creationTime(), ReasonExternallyManaged, manager,
		"managed by %s and unfinished since its creation at %s", manager, formatTime(f.creationTime()))
}

// checkSuspendedTooLong finds Jobs that somebody must resume.
func checkSuspendedTooLong(f *jobFacts) (Finding, bool) {
	_, external := f.externalManager()
	if !f.isSuspended() || !f.isUnfinished() || external {
		return Finding{}, false
	}
	since, found := f.suspensionChangeTime(corev1.ConditionTrue)
	if !found {
		since = f.lastEditTime()
	}
	if queue := f.Labels[labelKueueQueue]; queue != "" {
		return f.findingByAge(since, ReasonSuspendedTooLong, "Kueue", "queued by Kueue in %s since %s", queue, formatTime(since))
	}
	return f.findingByAge(since, ReasonSuspendedTooLong, "", "suspended since %s", formatTime(since))
}

// suspensionChangeTime returns the time since when the Job is suspended, or not, according to
// the condition that the Job controller maintains. Without that condition found is false. A
// condition with another status is outdated: the Job was edited after it.
func (f *jobFacts) suspensionChangeTime(want corev1.ConditionStatus) (at time.Time, found bool) {
	for i := range f.Status.Conditions {
		if c := &f.Status.Conditions[i]; c.Type == batchv1.JobSuspended {
			if c.Status == want {
				return f.firstKnownTime(c.LastTransitionTime.Time), true
			}
			return laterTime(c.LastTransitionTime.Time, f.lastEditTime()), true
		}
	}
	return time.Time{}, false
}

// checkNeverStarted finds Jobs that the Job controller has not started.
func checkNeverStarted(f *jobFacts) (Finding, bool) {
	if !f.isExpectedToProgress() || f.isStarted() {
		return Finding{}, false
	}
	since, found := f.suspensionChangeTime(corev1.ConditionFalse)
	if !found {
		since = f.creationTime()
	}
	return f.findingByAge(since, ReasonNeverStarted, "", "waiting to be started since %s; no startTime", formatTime(since))
}

// checkPausedByParallelism finds Jobs that wait until somebody raises their parallelism.
func checkPausedByParallelism(f *jobFacts) (Finding, bool) {
	if !f.isExpectedToProgress() || !f.hasZeroParallelism() {
		return Finding{}, false
	}
	since := laterTime(f.startTime(), f.lastEditTime())
	return f.findingByAge(since, ReasonPausedByParallelism, "",
		"parallelism is 0 since %s or earlier", formatTime(since))
}
