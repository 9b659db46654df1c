package zombie

import batchv1 "k8s.io/api/batch/v1"

// checkFailureTargetStuck finds Jobs that are about to fail: their Pods do not go.
func checkFailureTargetStuck(f *jobFacts) (Finding, bool) {
	return checkInterimCondition(f, batchv1.JobFailureTarget, ReasonFailureTargetStuck)
}

// checkSuccessCriteriaStuck finds Jobs that are about to complete: their Pods do not go.
func checkSuccessCriteriaStuck(f *jobFacts) (Finding, bool) {
	return checkInterimCondition(f, batchv1.JobSuccessCriteriaMet, ReasonSuccessCriteriaStuck)
}

func checkInterimCondition(f *jobFacts, kind batchv1.JobConditionType, reason Reason) (Finding, bool) {
	condition := f.trueCondition(kind)
	if condition == nil || !f.isUnfinished() {
		return Finding{}, false
	}
	return f.findingByAge(f.thresholds.InterimStuck, f.firstKnownTime(condition.LastTransitionTime.Time), reason, condition.Reason,
		"has %s since %s, and has not finished: %s", kind, formatTime(f.firstKnownTime(condition.LastTransitionTime.Time)), conditionExplanation(condition))
}
