package workerpool

import (
	"cmp"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// summaryRules determine Ready, Reconciling and Stalled. The first rule that returns a summary
// applies; the last one always does.
var summaryRules = []func(*evaluation) *decision.Summary{
	summarizeDeletion, summarizeProblem, summarizeRefusal, summarizeStoppedRollout, summarizeAvailability,
}

func summarize(e *evaluation) (summary decision.Summary) {
	for _, rule := range summaryRules {
		if found := rule(e); found != nil {
			return *found
		}
	}
	return decision.Summary{}
}

// waitingReasons are the reasons of problems that can disappear without a change of the pool,
// such as a missing object that is created later, or a quota that has room again.
var waitingReasons = []string{
	v1alpha1.ReasonQueueNotFound, v1alpha1.ReasonQueueNotReady, v1alpha1.ReasonSecretNotFound, v1alpha1.ReasonNoBroker,
	v1alpha1.ReasonConnectionFailed, v1alpha1.ReasonPending, v1alpha1.ReasonQuotaExceeded,
}

// problemSummary returns the summary of a pool with a problem.
func problemSummary(ready metav1.ConditionStatus, problem decision.Problem) *decision.Summary {
	summary := &decision.Summary{Ready: ready, Reason: problem.Reason, Message: problem.Message, Progress: decision.Stuck}
	if slices.Contains(waitingReasons, problem.Reason) {
		summary.Progress = decision.InProgress
	}
	return summary
}

func summarizeDeletion(e *evaluation) *decision.Summary {
	if !e.isDeleting() {
		return nil
	}
	message := "all workers are drained"
	switch remaining := e.status.Replicas; {
	case remaining == 0:
	case e.observation.Stats == nil:
		message = fmt.Sprintf("%d workers are draining, but the broker cannot confirm that they have finished (%s); "+
			"to delete the WorkerPool anyway, annotate it with %s=true", remaining, e.observation.StatsError, AnnotationAbandon)
	default:
		message = fmt.Sprintf("waiting for %d workers to drain", remaining)
	}
	return &decision.Summary{Ready: metav1.ConditionFalse, Reason: v1alpha1.ReasonDeleting, Message: message, Progress: decision.InProgress}
}

func summarizeProblem(e *evaluation) *decision.Summary {
	if e.problem == nil {
		return nil
	}
	return problemSummary(metav1.ConditionFalse, *e.problem)
}

func summarizeRefusal(e *evaluation) *decision.Summary {
	if e.observation.Refusal == nil {
		return nil
	}
	return problemSummary(metav1.ConditionFalse, refusalProblem(e.observation.Refusal))
}

func refusalProblem(refusal *decision.Refusal) decision.Problem {
	object := refusal.Kind + " " + refusal.Name
	switch refusal.Class {
	case decision.QuotaExceeded:
		return decision.Problem{Reason: v1alpha1.ReasonQuotaExceeded, Message: fmt.Sprintf("waiting for quota for %s: %s", object, refusal.Message)}
	case decision.PolicyDenied:
		return decision.Problem{Reason: v1alpha1.ReasonPolicyDenied, Message: fmt.Sprintf("%s was denied: %s", object, refusal.Message)}
	case decision.AlreadyExists:
		return decision.Problem{Reason: v1alpha1.ReasonNameTaken, Message: refusal.Message}
	default:
		return decision.Problem{Reason: v1alpha1.ReasonSpecInvalid, Message: fmt.Sprintf("%s was refused as invalid: %s", object, refusal.Message)}
	}
}

// summarizeStoppedRollout reports a rollout that cannot continue. Workers of the old revision
// may still serve, so Ready depends on the number of ready workers.
func summarizeStoppedRollout(e *evaluation) *decision.Summary {
	if e.rolloutComplete {
		return nil
	}
	problem := cmp.Or(e.updated.startFailure(), e.stalledProgress())
	if failure := e.updated.newHistory.FailureMessage; failure != "" {
		problem = &decision.Problem{Reason: v1alpha1.ReasonAnalysisFailed, Message: failure}
	}
	if problem == nil {
		return nil
	}
	available, _ := e.availability()
	return problemSummary(decision.StatusOf(available), *problem)
}

func summarizeAvailability(e *evaluation) *decision.Summary {
	available, message := e.availability()
	sleeping := e.desired == 0 && e.status.Replicas == 0
	switch failure := e.updated.startFailure(); {
	case !available && failure != nil && failure.Reason == v1alpha1.ReasonQuotaExceeded:
		return problemSummary(metav1.ConditionFalse, *failure)
	case !available:
		return &decision.Summary{
			Ready: metav1.ConditionFalse, Reason: v1alpha1.ReasonMinimumUnavailable, Message: message, Progress: decision.InProgress,
		}
	case !e.rolloutComplete && !sleeping:
		return &decision.Summary{
			Ready: metav1.ConditionTrue, Reason: v1alpha1.ReasonRollingOut, Message: e.progressMessage(), Progress: decision.InProgress,
		}
	default:
		return &decision.Summary{Ready: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady, Progress: decision.Settled}
	}
}
