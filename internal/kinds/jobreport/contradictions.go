package jobreport

import (
	batchv1 "k8s.io/api/batch/v1"
)

// contradictoryConditions lists pairs of conditions that exclude each other.
var contradictoryConditions = [][2]batchv1.JobConditionType{
	{batchv1.JobComplete, batchv1.JobFailed},
	{batchv1.JobComplete, batchv1.JobFailureTarget},
	{batchv1.JobFailed, batchv1.JobSuccessCriteriaMet},
	{batchv1.JobSuccessCriteriaMet, batchv1.JobFailureTarget},
}

// checkContradictions finds Jobs about which every other rule would have to guess.
func checkContradictions(f *jobFacts) (Finding, bool) {
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
		return suspiciousFinding(f.creationTime(), ReasonUnknown, "UnknownCompletionMode", "unknown completion mode %q", *mode)
	}
	return Finding{}, false
}

// checkInterimConditions finds Jobs that are about to fail or to complete, but whose Pods do not
// terminate.
func checkInterimConditions(f *jobFacts) (Finding, bool) {
	if finding, found := f.checkInterimCondition(batchv1.JobFailureTarget, ReasonFailureTargetStuck); found {
		return finding, found
	}
	return f.checkInterimCondition(batchv1.JobSuccessCriteriaMet, ReasonSuccessCriteriaStuck)
}

func (f *jobFacts) checkInterimCondition(kind batchv1.JobConditionType, reason Reason) (Finding, bool) {
	condition := f.trueCondition(kind)
	if condition == nil || !f.isUnfinished() {
		return Finding{}, false
	}
	since := f.firstKnownTime(condition.LastTransitionTime.Time)
	return f.findingByAge(since, reason, condition.Reason,
		"condition %s is True since %s, but the Job has not finished: %s", kind, formatTime(since), conditionExplanation(condition))
}
