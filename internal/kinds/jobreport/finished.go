package jobreport

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// checkTTLNotEnforced finds Jobs that their ttlSecondsAfterFinished should have deleted.
func checkTTLNotEnforced(f *jobFacts) *Finding {
	at, _ := f.finishTime() // zero for an unfinished Job
	ttl := f.Spec.TTLSecondsAfterFinished
	if at.IsZero() || ttl == nil || f.DeletionTimestamp != nil {
		return nil
	}
	return f.findingByAge(addSeconds(at, int64(*ttl)), ReasonTTLNotEnforced, "",
		"finished at %s and was not deleted after its TTL of %d s", formatTime(at), *ttl)
}

// checkFailedLongAgo finds failed Jobs that nobody deletes. A controller deletes its Jobs itself, as a CronJob does by
// failedJobsHistoryLimit, and a TTL deletes the Job later.
func checkFailedLongAgo(f *jobFacts) *Finding {
	condition := f.trueCondition(batchv1.JobFailed)
	if condition == nil || f.hasController() || f.Spec.TTLSecondsAfterFinished != nil {
		return nil
	}
	at, _ := f.finishTime()
	finding := f.findingByAge(at, ReasonFailedLongAgo, condition.Reason, "failed at %s: %s", formatTime(at), f.failureExplanation(condition))
	if finding != nil && !f.isOrphan() {
		finding.Severity = SeverityLow // it takes up space and does no harm
	}
	return finding
}

// jobControllerFailures lists the Job controller's reasons that are also reasons of findings.
var jobControllerFailures = []Reason{
	ReasonBackoffLimitExceeded, ReasonDeadlineExceeded, ReasonPodFailurePolicy, ReasonMaxFailedIndexesExceeded, ReasonFailedIndexes,
}

// IsFailure reports whether the reason only means that the Job failed, which a later success of the same work makes irrelevant.
func (r Reason) IsFailure() bool {
	return r == ReasonFailedLongAgo || r == ReasonFailedOther || slices.Contains(jobControllerFailures, r)
}

// checkFailed finds all other failed Jobs.
func checkFailed(f *jobFacts) *Finding {
	condition := f.trueCondition(batchv1.JobFailed)
	if condition == nil || f.isTolerated() {
		return nil
	}
	reason := ReasonFailedOther
	if slices.Contains(jobControllerFailures, Reason(condition.Reason)) {
		reason = Reason(condition.Reason)
	}
	at, _ := f.finishTime()
	return suspiciousFinding(at, reason, condition.Reason, "%s", f.failureExplanation(condition))
}

// failureExplanation returns the message of the condition, with the number of failed Pods.
func (f *jobFacts) failureExplanation(condition *batchv1.JobCondition) string {
	explanation := conditionExplanation(condition)
	if condition.Reason == string(ReasonBackoffLimitExceeded) && f.Status.Failed > 0 && f.Spec.BackoffLimit != nil {
		return fmt.Sprintf("%d failed, backoffLimit %d: %s", f.Status.Failed, *f.Spec.BackoffLimit, explanation)
	}
	if f.Spec.Completions != nil && f.Status.Failed > 0 {
		return fmt.Sprintf("%d of %d completions, %d failed: %s", f.Status.Succeeded, *f.Spec.Completions, f.Status.Failed, explanation)
	}
	return explanation
}

func conditionExplanation(condition *batchv1.JobCondition) string {
	return cmp.Or(condition.Message, condition.Reason, "the Job states no reason")
}

// checkFinishedNotCleaned finds succeeded Jobs that nothing will ever delete.
func checkFinishedNotCleaned(f *jobFacts) *Finding {
	if f.trueCondition(batchv1.JobComplete) == nil || f.Spec.TTLSecondsAfterFinished != nil || f.hasController() || f.isOrphan() {
		return nil // an orphan is reported as Orphaned at any age
	}
	at, _ := f.finishTime()
	finding := f.findingByAge(at, ReasonFinishedNotCleaned, "",
		"completed at %s; no ttlSecondsAfterFinished or controller deletes it", formatTime(at))
	if finding != nil {
		finding.Severity = SeverityLow
	}
	return finding
}

// checkStuckTerminating finds deleted Jobs that a finalizer keeps.
func checkStuckTerminating(f *jobFacts) *Finding {
	if f.DeletionTimestamp == nil {
		return nil
	}
	since, cause, text := f.DeletionTimestamp.Time, "", "but still exists without a finalizer"
	if len(f.Finalizers) > 0 {
		cause, text = f.Finalizers[0], "waiting for finalizer "+strings.Join(f.Finalizers, ", ")
		switch cause {
		case metav1.FinalizerDeleteDependents:
			text += ": its Pods are not terminating"
		case metav1.FinalizerOrphanDependents:
			text += ": its Pods still refer to it"
		default:
			text += ": its controller has not removed it"
		}
	}
	return f.findingByAge(since, ReasonStuckTerminating, cause, "deleted at %s, %s", formatTime(since), text)
}

// checkOrphaned finds Jobs whose CronJob was deleted or disowned them: no history limit applies to them any more.
func checkOrphaned(f *jobFacts) *Finding {
	if !f.isOrphan() || f.DeletionTimestamp != nil {
		return nil
	}
	scheduled := cmp.Or(f.Annotations[batchv1.CronJobScheduledTimestampAnnotation], "an unknown time")
	return suspiciousFinding(f.CreationTimestamp.Time, ReasonOrphaned, "CronJob", "created by a CronJob for %s, but has no controller", scheduled)
}

// isOrphan reports whether a CronJob created the Job and no longer controls it.
func (f *jobFacts) isOrphan() bool {
	_, found := f.Annotations[batchv1.CronJobScheduledTimestampAnnotation]
	return found && !f.hasController()
}
