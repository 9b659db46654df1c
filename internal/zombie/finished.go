package zombie

import (
	"slices"

	batchv1 "k8s.io/api/batch/v1"
)

// checkTTLNotEnforced finds Jobs that should have been deleted by their own
// ttlSecondsAfterFinished.
func checkTTLNotEnforced(f *jobFacts) (Finding, bool) {
	at, finished := f.finishTime()
	ttl := f.Spec.TTLSecondsAfterFinished
	if !finished || at.IsZero() || ttl == nil || f.isDeleted() {
		return Finding{}, false
	}
	due := addSeconds(at, int64(*ttl))
	return f.findingByAge(f.thresholds.TTLNotEnforced, due, ReasonTTLNotEnforced, "",
		"finished at %s, and was to be deleted %d s later", formatTime(at), *ttl)
}

// checkFailedLongAgo finds failed Jobs that nobody has cleaned up. Those with a controller
// are that controller's to clean up, as a CronJob does by failedJobsHistoryLimit.
func checkFailedLongAgo(f *jobFacts) (Finding, bool) {
	condition := f.failedCondition()
	if condition == nil || f.hasController() {
		return Finding{}, false
	}
	at, _ := f.finishTime()
	return f.findingByAge(f.thresholds.FailedLongAgo, at, ReasonFailedLongAgo, condition.Reason, "failed at %s: %s", formatTime(at), conditionExplanation(condition))
}

// jobControllerFailures are the reasons of the Job controller that are reasons here too.
var jobControllerFailures = []Reason{ReasonBackoffLimitExceeded, ReasonDeadlineExceeded, ReasonPodFailurePolicy, ReasonMaxFailedIndexesExceeded, ReasonFailedIndexes}

// checkFailed finds all other failed Jobs.
func checkFailed(f *jobFacts) (Finding, bool) {
	condition := f.failedCondition()
	if condition == nil {
		return Finding{}, false
	}
	reason := ReasonFailedOther
	if slices.Contains(jobControllerFailures, Reason(condition.Reason)) {
		reason = Reason(condition.Reason)
	}
	at, _ := f.finishTime()
	return suspiciousFinding(at, reason, condition.Reason, "%s", conditionExplanation(condition))
}

// conditionExplanation is what the condition says of itself, in words if it has some.
func conditionExplanation(condition *batchv1.JobCondition) string {
	switch {
	case condition.Message != "":
		return condition.Message
	case condition.Reason != "":
		return condition.Reason
	default:
		return "no reason was given"
	}
}

// checkFinishedNotCleaned finds Jobs that succeeded and that nothing will ever delete.
func checkFinishedNotCleaned(f *jobFacts) (Finding, bool) {
	if f.completeCondition() == nil || f.Spec.TTLSecondsAfterFinished != nil || f.hasController() {
		return Finding{}, false
	}
	at, _ := f.finishTime()
	found, grown := f.findingByAge(f.thresholds.FinishedNotCleaned, at, ReasonFinishedNotCleaned, "",
		"completed at %s, without ttlSecondsAfterFinished and without a controller that cleans up", formatTime(at))
	if grown {
		// It takes up space, and does no harm.
		found.Severity = SeverityLow
	}
	return found, grown
}
