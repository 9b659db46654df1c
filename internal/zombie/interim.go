package zombie

import batchv1 "k8s.io/api/batch/v1"

// failureTargetStuck finds Jobs that are about to fail: their Pods do not go.
func failureTargetStuck(f *facts) (Finding, bool) {
	return interimStuck(f, batchv1.JobFailureTarget, FailureTargetStuck)
}

// successCriteriaStuck finds Jobs that are about to complete: their Pods do not go.
func successCriteriaStuck(f *facts) (Finding, bool) {
	return interimStuck(f, batchv1.JobSuccessCriteriaMet, SuccessCriteriaStuck)
}

func interimStuck(f *facts, kind batchv1.JobConditionType, reason Reason) (Finding, bool) {
	condition := f.condition(kind)
	if condition == nil || !f.unfinished() {
		return Finding{}, false
	}
	return f.grown(f.thresholds.InterimStuck, f.first(condition.LastTransitionTime.Time), reason, condition.Reason,
		"has %s since %s, and has not finished: %s", kind, format(f.first(condition.LastTransitionTime.Time)), why(condition))
}
