package zombie

import (
	"cmp"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
)

// checkTTLNotEnforced finds Jobs that their ttlSecondsAfterFinished should have deleted.
func checkTTLNotEnforced(f *jobFacts) (Finding, bool) {
	at, finished := f.finishTime()
	ttl := f.Spec.TTLSecondsAfterFinished
	if !finished || at.IsZero() || ttl == nil || f.isDeleted() {
		return Finding{}, false
	}
	return f.findingByAge(addSeconds(at, int64(*ttl)), ReasonTTLNotEnforced, "",
		"finished at %s and was not deleted after its TTL of %d s", formatTime(at), *ttl)
}

// checkFailedLongAgo finds failed Jobs that nobody deleted. A controller deletes its Jobs itself,
// as a CronJob does by failedJobsHistoryLimit.
func checkFailedLongAgo(f *jobFacts) (Finding, bool) {
	condition := f.trueCondition(batchv1.JobFailed)
	if condition == nil || f.hasController() {
		return Finding{}, false
	}
	at, _ := f.finishTime()
	return f.findingByAge(at, ReasonFailedLongAgo, condition.Reason, "failed at %s: %s", formatTime(at), conditionExplanation(condition))
}

// jobControllerFailures lists the Job controller's reasons that are also reasons of findings.
var jobControllerFailures = []Reason{
	ReasonBackoffLimitExceeded, ReasonDeadlineExceeded, ReasonPodFailurePolicy, ReasonMaxFailedIndexesExceeded, ReasonFailedIndexes,
}

// checkFailed finds all other failed Jobs.
func checkFailed(f *jobFacts) (Finding, bool) {
	condition := f.trueCondition(batchv1.JobFailed)
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

func conditionExplanation(condition *batchv1.JobCondition) string {
	return cmp.Or(condition.Message, condition.Reason, "the Job states no reason")
}

// checkFinishedNotCleaned finds succeeded Jobs that nothing will ever delete.
func checkFinishedNotCleaned(f *jobFacts) (Finding, bool) {
	if f.trueCondition(batchv1.JobComplete) == nil || f.Spec.TTLSecondsAfterFinished != nil || f.hasController() {
		return Finding{}, false
	}
	at, _ := f.finishTime()
	finding, found := f.findingByAge(at, ReasonFinishedNotCleaned, "",
		"completed at %s; no ttlSecondsAfterFinished or controller deletes it", formatTime(at))
	if found {
		finding.Severity = SeverityLow
	}
	return finding, found
}

// checkStuckTerminating finds deleted Jobs that a finalizer keeps.
func checkStuckTerminating(f *jobFacts) (Finding, bool) {
	if !f.isDeleted() {
		return Finding{}, false
	}
	since, cause, finalizers := f.DeletionTimestamp.Time, "", "none"
	if len(f.Finalizers) > 0 {
		cause, finalizers = f.Finalizers[0], strings.Join(f.Finalizers, ", ")
	}
	return f.findingByAge(since, ReasonStuckTerminating, cause, "deleted at %s but still exists; finalizers: %s", formatTime(since), finalizers)
}

// checkOrphaned finds Jobs whose CronJob was deleted or disowned them: no history limit applies
// to them any more.
func checkOrphaned(f *jobFacts) (Finding, bool) {
	scheduled, found := f.Annotations[batchv1.CronJobScheduledTimestampAnnotation]
	if !found || f.hasController() || f.isDeleted() {
		return Finding{}, false
	}
	return suspiciousFinding(f.creationTime(), ReasonOrphaned, "CronJob", "created by a CronJob for %s, but has no controller", scheduled)
}
