package zombie

import (
	"slices"

	batchv1 "k8s.io/api/batch/v1"
)

// ttlNotEnforced finds Jobs that should have been deleted by their own
// ttlSecondsAfterFinished.
func ttlNotEnforced(f *facts) (Finding, bool) {
	at, finished := f.finished()
	ttl := f.Spec.TTLSecondsAfterFinished
	if !finished || at.IsZero() || ttl == nil || f.deleted() {
		return Finding{}, false
	}
	due := after(at, int64(*ttl))
	return f.grown(f.thresholds.TTLNotEnforced, due, TTLNotEnforced, "",
		"finished at %s, and was to be deleted %d s later", format(at), *ttl)
}

// failedLongAgo finds failed Jobs that nobody has cleaned up. Those with a controller
// are that controller's to clean up, as a CronJob does by failedJobsHistoryLimit.
func failedLongAgo(f *facts) (Finding, bool) {
	condition := f.failed()
	if condition == nil || f.controlled() {
		return Finding{}, false
	}
	at, _ := f.finished()
	return f.grown(f.thresholds.FailedLongAgo, at, FailedLongAgo, condition.Reason, "failed at %s: %s", format(at), why(condition))
}

// failures are the reasons of the Job controller that are reasons here too.
var failures = []Reason{BackoffLimitExceeded, DeadlineExceeded, PodFailurePolicy, MaxFailedIndexesExceeded, FailedIndexes}

// failed finds all other failed Jobs.
func failed(f *facts) (Finding, bool) {
	condition := f.failed()
	if condition == nil {
		return Finding{}, false
	}
	reason := FailedOther
	if slices.Contains(failures, Reason(condition.Reason)) {
		reason = Reason(condition.Reason)
	}
	at, _ := f.finished()
	return suspicious(at, reason, condition.Reason, "%s", why(condition))
}

// why is what the condition says of itself, in words if it has some.
func why(condition *batchv1.JobCondition) string {
	switch {
	case condition.Message != "":
		return condition.Message
	case condition.Reason != "":
		return condition.Reason
	default:
		return "no reason was given"
	}
}

// finishedNotCleaned finds Jobs that succeeded and that nothing will ever delete.
func finishedNotCleaned(f *facts) (Finding, bool) {
	if f.complete() == nil || f.Spec.TTLSecondsAfterFinished != nil || f.controlled() {
		return Finding{}, false
	}
	at, _ := f.finished()
	found, grown := f.grown(f.thresholds.FinishedNotCleaned, at, FinishedNotCleaned, "",
		"completed at %s, without ttlSecondsAfterFinished and without a controller that cleans up", format(at))
	if grown {
		// It takes up space, and does no harm.
		found.Severity = Low
	}
	return found, grown
}
