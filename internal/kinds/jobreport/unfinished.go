package jobreport

import (
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// contradictoryConditions lists pairs of conditions that exclude each other.
var contradictoryConditions = [][2]batchv1.JobConditionType{
	{batchv1.JobComplete, batchv1.JobFailed},
	{batchv1.JobComplete, batchv1.JobFailureTarget},
	{batchv1.JobFailed, batchv1.JobSuccessCriteriaMet},
	{batchv1.JobSuccessCriteriaMet, batchv1.JobFailureTarget},
}

// checkContradictions finds Jobs about which every other rule would have to guess.
func checkContradictions(f *jobFacts) *Finding {
	for _, pair := range contradictoryConditions {
		one, other := f.trueCondition(pair[0]), f.trueCondition(pair[1])
		if one == nil || other == nil {
			continue
		}
		since := laterTime(one.LastTransitionTime.Time, other.LastTransitionTime.Time)
		return suspiciousFinding(f.firstKnownTime(since), ReasonUnknown, "ContradictoryConditions",
			"the conditions %s and %s are both True", pair[0], pair[1])
	}
	if mode := f.Spec.CompletionMode; mode != nil && *mode != batchv1.NonIndexedCompletion && *mode != batchv1.IndexedCompletion {
		return suspiciousFinding(f.CreationTimestamp.Time, ReasonUnknown, "UnknownCompletionMode", "unknown completion mode %q", *mode)
	}
	return nil
}

// checkInterimConditions finds Jobs that are about to fail or to complete, but whose Pods do not terminate.
func checkInterimConditions(f *jobFacts) *Finding {
	for _, interim := range []struct {
		kind   batchv1.JobConditionType
		reason Reason
	}{{batchv1.JobFailureTarget, ReasonFailureTargetStuck}, {batchv1.JobSuccessCriteriaMet, ReasonSuccessCriteriaStuck}} {
		condition := f.trueCondition(interim.kind)
		if condition == nil || !f.isUnfinished() {
			continue
		}
		since := f.firstKnownTime(condition.LastTransitionTime.Time)
		finding := f.findingByAge(since, interim.reason, condition.Reason,
			"condition %s is True since %s, but the Job has not finished: %s", interim.kind, formatTime(since), conditionExplanation(condition))
		if finding != nil {
			return finding
		}
	}
	return nil
}

// checkExternallyManaged finds unfinished Jobs of another controller. The meaning of their status is unknown here, so the later
// rules about progress do not apply to them.
func checkExternallyManaged(f *jobFacts) *Finding {
	manager, external := f.externalManager()
	if !external || !f.isUnfinished() {
		return nil
	}
	return f.findingByAge(f.CreationTimestamp.Time, ReasonExternallyManaged, manager,
		"managed by %s and unfinished since its creation at %s", manager, formatTime(f.CreationTimestamp.Time))
}

// checkSuspendedTooLong finds Jobs that somebody must resume.
func checkSuspendedTooLong(f *jobFacts) *Finding {
	_, external := f.externalManager()
	if !f.isSuspended() || !f.isUnfinished() || external {
		return nil
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

// suspensionChangeTime returns since when the Job is suspended, or not suspended, according to the Job controller's condition.
// Without the condition found is false. A condition with another status is outdated: the Job was edited after it.
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
func checkNeverStarted(f *jobFacts) *Finding {
	if !f.isExpectedToProgress() || f.Status.StartTime != nil {
		return nil
	}
	since, found := f.suspensionChangeTime(corev1.ConditionFalse)
	if !found {
		since = f.CreationTimestamp.Time
	}
	return f.findingByAge(since, ReasonNeverStarted, "", "waiting to be started since %s; no startTime", formatTime(since))
}

// checkPausedByParallelism finds Jobs that wait until somebody raises their parallelism.
func checkPausedByParallelism(f *jobFacts) *Finding {
	if !f.isExpectedToProgress() || !f.hasZeroParallelism() {
		return nil
	}
	since := laterTime(f.startTime(), f.lastEditTime())
	return f.findingByAge(since, ReasonPausedByParallelism, "",
		"parallelism is 0 since %s or earlier", formatTime(since))
}

// checkDeadlineNotEnforced finds Jobs that should have failed because of their activeDeadlineSeconds.
func checkDeadlineNotEnforced(f *jobFacts) *Finding {
	deadline := f.Spec.ActiveDeadlineSeconds
	if !f.isExpectedToProgress() || f.Status.StartTime == nil || deadline == nil {
		return nil
	}
	return f.findingByAge(addSeconds(f.startTime(), *deadline), ReasonDeadlineNotEnforced, "",
		"started at %s and did not fail after its deadline of %d s", formatTime(f.startTime()), *deadline)
}

// checkNoActivePods finds Jobs whose Pods disappeared and are not recreated.
func checkNoActivePods(f *jobFacts) *Finding {
	s := &f.Status
	if !f.isExpectedToHavePods() || s.Active != 0 || (s.Terminating != nil && *s.Terminating != 0) {
		return nil
	}
	// A Job between two Pods has no active Pods either, however long ago it started.
	since := f.podCountsSince()
	return f.findingByAge(since, ReasonNoActivePods, "",
		"no Pods since %s; %d succeeded, %d failed", formatTime(since), s.Succeeded, s.Failed)
}

// checkNoReadyPods finds Jobs whose Pods do not become ready: they cannot be scheduled, their image cannot be pulled, they crash
// repeatedly, or their own container has ended and an injected sidecar runs on.
func checkNoReadyPods(f *jobFacts) *Finding {
	s := &f.Status
	if !f.isExpectedToHavePods() || s.Active <= 0 || s.Ready == nil || *s.Ready != 0 {
		return nil
	}
	template := &f.Spec.Template.Spec
	isInit := func(c corev1.Container) bool {
		return ptr.Deref(c.RestartPolicy, "") != corev1.ContainerRestartPolicyAlways
	}
	remark := ""
	if slices.ContainsFunc(template.InitContainers, isInit) {
		remark = "; an init container may work"
	}
	if len(template.Containers) > 1 {
		remark += "; one container may have ended while another works"
	}
	if remark != "" { // such a Pod is not ready either, however long the work takes
		at := *f
		at.threshold.Zombie = 0
		f = &at
	}
	// A Job whose Pod was evicted or whose container restarts has no ready Pods either, however long ago it started.
	since := f.podCountsSince()
	return f.findingByAge(since, ReasonNoReadyPods, "",
		"none of %d active Pods is ready since %s; %d succeeded, %d failed%s", s.Active, formatTime(since), s.Succeeded, s.Failed, remark)
}

// podCountsSince returns since when the status has its present numbers of Pods; zero, which means unknown, if managedFields do
// not state the last change of the status.
func (f *jobFacts) podCountsSince() time.Time {
	changed := f.lastWriteTime("status")
	if changed.IsZero() {
		return time.Time{}
	}
	return laterTime(f.startTime(), changed)
}

// checkRunningTooLong finds Jobs that run forever if they hang.
func checkRunningTooLong(f *jobFacts) *Finding {
	if !f.isExpectedToHavePods() || f.Spec.ActiveDeadlineSeconds != nil {
		return nil
	}
	remark := ""
	if stated, isStated := f.Annotations[v1alpha1.AnnotationReportRunningTooLong]; isStated {
		limit, err := ParseDuration(stated)
		if err == nil {
			return f.checkStatedRunningLimit(limit)
		}
		remark = "; the annotation " + v1alpha1.AnnotationReportRunningTooLong + " is ignored: " + err.Error()
	}
	return f.findingByAge(f.startTime(), ReasonRunningTooLong, "",
		"running since %s without activeDeadlineSeconds%s", formatTime(f.startTime()), remark)
}

// checkStatedRunningLimit checks a Job that states how long it may run. After that time somebody should examine it, but a Job
// that is known to run long is never a zombie.
func (f *jobFacts) checkStatedRunningLimit(limit time.Duration) *Finding {
	at := *f
	at.threshold = Threshold{Suspicious: limit}
	finding := at.findingByAge(f.startTime(), ReasonRunningTooLong, "", "running since %s, longer than the %s of its annotation %s",
		formatTime(f.startTime()), FormatDuration(limit), v1alpha1.AnnotationReportRunningTooLong)
	if finding == nil && f.findingByAge(f.startTime(), ReasonRunningTooLong, "", "") != nil {
		return &Finding{Category: CategoryIgnored}
	}
	return finding
}
