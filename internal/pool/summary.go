package pool

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/apierror"
	"github.com/yardmaster/yardmaster/internal/condition"
	"github.com/yardmaster/yardmaster/internal/core"
)

// summaryRules determine Ready, Reconciling and Stalled. The first rule that returns a summary
// applies.
var summaryRules = []func(*evaluation) *condition.Summary{
	summarizeDeletion, summarizeProblem, summarizeRefusal, summarizeStoppedRollout, summarizeAvailability,
}

func (e *evaluation) setSummary() {
	for _, summarize := range summaryRules {
		if summary := summarize(e); summary != nil {
			condition.Set(&e.status.Conditions, e.observation.Pool.Generation, metav1.NewTime(e.now), *summary)
			return
		}
	}
}

func summarizeDeletion(e *evaluation) *condition.Summary {
	if !e.isDeleting() {
		return nil
	}
	return &condition.Summary{
		Ready: metav1.ConditionFalse, Reason: v1alpha1.ReasonDeleting, Message: e.deletionMessage(), Progress: condition.InProgress,
	}
}

// deletionMessage describes what the deletion of the pool waits for.
func (e *evaluation) deletionMessage() string {
	remaining := e.status.Replicas
	switch {
	case remaining == 0:
		return "all workers are drained"
	case e.observation.Stats == nil:
		return fmt.Sprintf("%d workers are draining, but the broker cannot confirm that they have finished (%s); "+
			"to delete the WorkerPool anyway, annotate it with %s=true", remaining, e.observation.StatsError, AnnotationAbandon)
	default:
		return fmt.Sprintf("waiting for %d workers to drain", remaining)
	}
}

// waitingReasons are the reasons of problems that can disappear without a change of the pool,
// such as a missing object that is created later.
var waitingReasons = []string{
	v1alpha1.ReasonQueueNotFound, v1alpha1.ReasonSecretNotFound, v1alpha1.ReasonNoBroker,
	v1alpha1.ReasonConnectionFailed, v1alpha1.ReasonPending,
}

func summarizeProblem(e *evaluation) *condition.Summary {
	if e.problem == nil {
		return nil
	}
	summary := &condition.Summary{
		Ready: metav1.ConditionFalse, Reason: e.problem.Reason, Message: e.problem.Message, Progress: condition.Stuck,
	}
	if slices.Contains(waitingReasons, e.problem.Reason) {
		summary.Progress = condition.InProgress
	}
	return summary
}

func summarizeRefusal(e *evaluation) *condition.Summary {
	refusal := e.observation.Refusal
	if refusal == nil {
		return nil
	}
	summary := &condition.Summary{Ready: metav1.ConditionFalse, Progress: condition.Stuck}
	summary.Reason, summary.Message = refusalReason(refusal)
	if refusal.Class == apierror.QuotaExceeded {
		summary.Progress = condition.InProgress
	}
	return summary
}

func refusalReason(refusal *core.Refusal) (reason, message string) {
	object := refusal.Kind + " " + refusal.Name
	switch refusal.Class {
	case apierror.QuotaExceeded:
		return v1alpha1.ReasonQuotaExceeded, fmt.Sprintf("waiting for quota for %s: %s", object, refusal.Message)
	case apierror.PolicyDenied:
		return v1alpha1.ReasonPolicyDenied, fmt.Sprintf("%s was denied: %s", object, refusal.Message)
	case apierror.AlreadyExists:
		return v1alpha1.ReasonNameTaken, object + " already exists and does not belong to this WorkerPool; delete or rename it"
	default:
		return v1alpha1.ReasonSpecInvalid, fmt.Sprintf("%s was refused as invalid: %s", object, refusal.Message)
	}
}

// summarizeStoppedRollout reports a rollout that cannot continue. Workers of the old revision
// may still serve, so Ready depends on the number of ready workers.
func summarizeStoppedRollout(e *evaluation) *condition.Summary {
	if e.rolloutComplete {
		return nil
	}
	summary := &condition.Summary{Ready: conditionStatus(e.isAvailable()), Progress: condition.Stuck}
	failure := e.updated.startFailure()
	switch {
	case e.updated.newHistory.FailureMessage != "":
		summary.Reason, summary.Message = v1alpha1.ReasonAnalysisFailed, e.updated.newHistory.FailureMessage
	case failure != nil:
		summary.Reason, summary.Message = failure.Reason, failure.Message
		if failure.Reason == v1alpha1.ReasonQuotaExceeded {
			summary.Progress = condition.InProgress
		}
	case e.isProgressOverdue():
		summary.Reason, summary.Message = v1alpha1.ReasonNoProgress, e.noProgressMessage()
	default:
		return nil
	}
	return summary
}

func summarizeAvailability(e *evaluation) *condition.Summary {
	failure := e.updated.startFailure()
	sleeping := e.desired == 0 && e.status.Replicas == 0
	switch {
	case !e.isAvailable() && failure != nil && failure.Reason == v1alpha1.ReasonQuotaExceeded:
		return &condition.Summary{Ready: metav1.ConditionFalse, Reason: failure.Reason, Message: failure.Message, Progress: condition.InProgress}
	case !e.isAvailable():
		return &condition.Summary{
			Ready: metav1.ConditionFalse, Reason: v1alpha1.ReasonMinimumUnavailable, Message: e.availabilityMessage(), Progress: condition.InProgress,
		}
	case !e.rolloutComplete && !sleeping:
		return &condition.Summary{
			Ready: metav1.ConditionTrue, Reason: v1alpha1.ReasonRollingOut, Message: e.progressMessage(), Progress: condition.InProgress,
		}
	default:
		return &condition.Summary{Ready: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady, Progress: condition.Settled}
	}
}
