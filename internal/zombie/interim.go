package zombie

import batchv1 "k8s.io/api/batch/v1"

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
