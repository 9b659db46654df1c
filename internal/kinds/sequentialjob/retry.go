package sequentialjob

import (
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// retriedReasons are the failures of a Job after which another Job may succeed. After other failures, another Job would
// fail too, or a podFailurePolicy forbids it.
var retriedReasons = map[string]bool{
	batchv1.JobReasonBackoffLimitExceeded:     true,
	batchv1.JobReasonFailedIndexes:            true,
	batchv1.JobReasonMaxFailedIndexesExceeded: true,
	v1alpha1.ReasonStepDeadlineExceeded:       true,
	v1alpha1.ReasonStartDeadlineExceeded:      true,
}

// withRetry changes the verdict of a failed attempt to Retrying if the step has another attempt left and the run's
// deadline allows it.
func (e *evaluation) withRetry(step *v1alpha1.StepStatus, verdict stepVerdict) stepVerdict {
	stepSpec := findStepSpec(e.spec, step.Name)
	if verdict.phase != v1alpha1.StepFailed || !retriedReasons[verdict.reason] || stepSpec == nil {
		return verdict
	}
	retry := stepSpec.Options().Retry
	if retry == nil || step.FailedAttempts >= ptr.Deref(retry.Limit, 0) {
		return verdict
	}
	next := metav1.NewTime(e.now.Add(decision.RetryBackoff(retry, step.FailedAttempts)))
	if deadline, found := runDeadline(e.spec, &e.status); found && !stepSpec.Options().Finally && !next.Time.Before(deadline) {
		return verdict
	}
	verdict.phase, verdict.tolerated, verdict.nextAttempt = v1alpha1.StepRetrying, false, &next
	return verdict
}

// retryingStep returns the step that waits for its next attempt after a failure, or nil.
func retryingStep(steps []v1alpha1.StepStatus) *v1alpha1.StepStatus {
	return findStepWhere(steps, func(step *v1alpha1.StepStatus) bool { return step.Phase == v1alpha1.StepRetrying })
}

func retryMessage(step *v1alpha1.StepStatus) string {
	at := ""
	if step.NextAttemptTime != nil {
		at = " at " + step.NextAttemptTime.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("attempt %d of step %q failed: %s; attempt %d starts%s",
		step.Attempt, step.Name, decision.FormatReason(step.Reason, step.Message), step.Attempt+1, at)
}
