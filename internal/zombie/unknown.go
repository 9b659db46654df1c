package zombie

import (
	batchv1 "k8s.io/api/batch/v1"
)

// contradictions are conditions that no Job can have both.
var contradictions = [][2]batchv1.JobConditionType{
	{batchv1.JobComplete, batchv1.JobFailed},
	{batchv1.JobComplete, batchv1.JobFailureTarget},
	{batchv1.JobFailed, batchv1.JobSuccessCriteriaMet},
	{batchv1.JobSuccessCriteriaMet, batchv1.JobFailureTarget},
}

// unknown finds Jobs that cannot be judged: all other rules would guess.
func unknown(f *facts) (Finding, bool) {
	for _, pair := range contradictions {
		one, other := f.condition(pair[0]), f.condition(pair[1])
		if one == nil || other == nil {
			continue
		}
		since := latest(one.LastTransitionTime.Time, other.LastTransitionTime.Time)
		return suspicious(f.first(since), Unknown, "ContradictoryConditions",
			"the conditions %s and %s are both True", pair[0], pair[1])
	}
	if mode := f.Spec.CompletionMode; mode != nil && *mode != batchv1.NonIndexedCompletion && *mode != batchv1.IndexedCompletion {
		return suspicious(f.created(), Unknown, "UnknownCompletionMode", "the completion mode %q is not known", *mode)
	}
	return Finding{}, false
}
