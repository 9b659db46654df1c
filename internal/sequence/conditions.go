package sequence

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/apierror"
	"github.com/yardmaster/yardmaster/internal/condition"
	"github.com/yardmaster/yardmaster/internal/core"
)

// The wait before another attempt to create a Job that a quota or a taken name blocks is as long
// as it has been blocked already, within these bounds.
const (
	minBlockedRetry = time.Second
	maxBlockedRetry = time.Minute
)

const suspendedMessage = "spec.suspend is true"

// summarize derives counts, progress, conditions and phase from the steps.
func (e *evaluation) summarize() {
	e.status.State = countSteps(e.status.Steps)
	e.status.Progress = runProgress(&e.status)
	e.setBlockedCondition(v1alpha1.ConditionResourcesUnavailable, apierror.QuotaExceeded, v1alpha1.ReasonQuotaExceeded, v1alpha1.ReasonAvailable)
	e.setBlockedCondition(v1alpha1.ConditionNameConflict, apierror.AlreadyExists, v1alpha1.ReasonNameTaken, v1alpha1.ReasonNoConflict)
	e.setSuspendedCondition()
	e.setPhase()
	e.setSummary()
}

func countSteps(steps []v1alpha1.StepStatus) v1alpha1.StepCounts {
	var counts v1alpha1.StepCounts
	for i := range steps {
		switch {
		case isActive(steps[i].Phase):
			counts.Active++
		case steps[i].Phase == v1alpha1.StepSucceeded:
			counts.Succeeded++
		case steps[i].Phase == v1alpha1.StepFailed:
			counts.Failed++
		}
	}
	return counts
}

func runProgress(status *v1alpha1.SequentialJobStatus) v1alpha1.Progress {
	var progress v1alpha1.Progress
	failed := firstFailedStep(status.Steps)
	for i := range status.Steps {
		step := &status.Steps[i]
		index := int32(i)
		switch {
		case step.Phase == v1alpha1.StepSucceeded:
			progress.CompletedIndices = append(progress.CompletedIndices, index)
		case progress.CurrentIndex == nil && (isActive(step.Phase) || canStart(step.Phase)):
			progress.CurrentIndex, progress.CurrentStep = new(index), step.Name
		}
		if step == failed {
			progress.FailedIndex, progress.FailureReason = new(index), step.Reason
		}
	}
	progress.Display = fmt.Sprintf("%d/%d", len(progress.CompletedIndices), len(status.Steps))
	if progress.FailureReason == "" && isFinished(status) && !isCompleted(status) {
		progress.FailureReason, _ = runFailure(status)
	}
	return progress
}

// runFailure returns why a finished run failed.
func runFailure(status *v1alpha1.SequentialJobStatus) (reason, message string) {
	failed := firstFailedStep(status.Steps)
	if failed == nil {
		if isSpecRejected(status) {
			rejection := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionSpecAccepted)
			return rejection.Reason, rejection.Message
		}
		return v1alpha1.ReasonDeadlineExceeded, deadlineMessage
	}
	message = fmt.Sprintf("step %q failed: %s", failed.Name, core.FormatReason(failed.Reason, failed.Message))
	switch {
	case failed.Finally:
		return v1alpha1.ReasonFinallyFailed, message
	case status.DeadlineExceededTime != nil:
		return v1alpha1.ReasonDeadlineExceeded, message
	default:
		return v1alpha1.ReasonStepFailed, message
	}
}

// setBlockedCondition sets a condition that is absent until it was True once, and schedules the
// next attempt. While an attempt is due and not made yet, the condition remains as it is.
func (e *evaluation) setBlockedCondition(conditionType string, class apierror.Class, reason, clearedReason string) {
	switch {
	case e.blockedBy != nil && e.blockedBy.Class == class:
		e.setCondition(conditionType, metav1.ConditionTrue, reason, e.blockedBy.Message)
		since := meta.FindStatusCondition(e.status.Conditions, conditionType).LastTransitionTime
		e.requeueAfter(min(max(e.Now.Sub(since.Time), minBlockedRetry), maxBlockedRetry))
	case meta.IsStatusConditionTrue(e.status.Conditions, conditionType) && e.decision.CreateJob == nil:
		e.setCondition(conditionType, metav1.ConditionFalse, clearedReason, "")
	}
}

func (e *evaluation) setSuspendedCondition() {
	step := activeStep(e.status.Steps)
	switch {
	case !e.spec.Suspend || isFinished(&e.status):
		e.setCondition(v1alpha1.ConditionSuspended, metav1.ConditionFalse, v1alpha1.ReasonNotSuspended, "")
	case step == nil || step.Phase == v1alpha1.StepSuspended:
		e.setCondition(v1alpha1.ConditionSuspended, metav1.ConditionTrue, v1alpha1.ReasonSuspended, suspendedMessage)
	default:
		e.setCondition(v1alpha1.ConditionSuspended, metav1.ConditionFalse, v1alpha1.ReasonSuspending, suspendingMessage(step))
	}
}

func suspendingMessage(step *v1alpha1.StepStatus) string {
	return fmt.Sprintf("waiting for step %q to end", step.Name)
}

// setPhase sets the phase, and the conditions Progressing, Available and Failed, of which at
// most one is True.
func (e *evaluation) setPhase() {
	progressing, available, failed := metav1.ConditionFalse, metav1.ConditionFalse, metav1.ConditionFalse
	reason, message := "", ""
	switch step := activeStep(e.status.Steps); {
	case isCompleted(&e.status):
		available = metav1.ConditionTrue
		e.status.Phase, reason, message = v1alpha1.PhaseCompleted, v1alpha1.ReasonCompleted, e.status.Progress.Display+" steps succeeded"
	case isFinished(&e.status):
		failed = metav1.ConditionTrue
		e.status.Phase = v1alpha1.PhaseFailed
		reason, message = runFailure(&e.status)
		e.setCondition(v1alpha1.ConditionFailed, failed, reason, message)
	case meta.IsStatusConditionTrue(e.status.Conditions, v1alpha1.ConditionSuspended):
		e.status.Phase, reason, message = v1alpha1.PhaseSuspended, v1alpha1.ReasonSuspended, suspendedMessage
	case step == nil:
		e.status.Phase, reason, message = v1alpha1.PhasePending, v1alpha1.ReasonWaiting, "waiting for the first step to start"
	default:
		progressing = metav1.ConditionTrue
		e.status.Phase, reason, message = v1alpha1.PhaseRunning, v1alpha1.ReasonRunning, fmt.Sprintf("running step %q", step.Name)
		if step.Finally {
			reason = v1alpha1.ReasonRunningFinally
		}
	}
	e.setCondition(v1alpha1.ConditionProgressing, progressing, reason, message)
	e.setCondition(v1alpha1.ConditionAvailable, available, reason, message)
	if failed == metav1.ConditionFalse {
		e.setCondition(v1alpha1.ConditionFailed, failed, v1alpha1.ReasonNotFailed, "")
	}
}

// setSummary sets Ready, Reconciling and Stalled from the first rule that applies.
func (e *evaluation) setSummary() {
	for _, rule := range summaryRules {
		if summary, found := rule(e); found {
			condition.Set(&e.status.Conditions, e.SequentialJob.Generation, e.now, summary)
			return
		}
	}
}

// summaryRules are the states of docs/conditions.md.
var summaryRules = []func(*evaluation) (summary condition.Summary, found bool){
	func(e *evaluation) (condition.Summary, bool) {
		rejected := meta.FindStatusCondition(e.status.Conditions, v1alpha1.ConditionSpecAccepted)
		found := isFinished(&e.status) && isSpecRejected(&e.status)
		return stalledBy(rejected), found
	},
	func(e *evaluation) (condition.Summary, bool) {
		completed := meta.FindStatusCondition(e.status.Conditions, v1alpha1.ConditionAvailable)
		return summaryOf(completed, metav1.ConditionTrue, condition.Settled), isCompleted(&e.status)
	},
	func(e *evaluation) (condition.Summary, bool) {
		return stalledBy(meta.FindStatusCondition(e.status.Conditions, v1alpha1.ConditionFailed)), isFinished(&e.status)
	},
	func(e *evaluation) (condition.Summary, bool) {
		suspended := meta.FindStatusCondition(e.status.Conditions, v1alpha1.ConditionSuspended)
		progress := condition.InProgress
		if suspended.Status == metav1.ConditionTrue {
			progress = condition.Settled
		}
		return summaryOf(suspended, metav1.ConditionFalse, progress), e.spec.Suspend
	},
	func(e *evaluation) (condition.Summary, bool) {
		taken := meta.FindStatusCondition(e.status.Conditions, v1alpha1.ConditionNameConflict)
		return stalledBy(taken), taken != nil && taken.Status == metav1.ConditionTrue
	},
	func(e *evaluation) (condition.Summary, bool) {
		quota := meta.FindStatusCondition(e.status.Conditions, v1alpha1.ConditionResourcesUnavailable)
		return summaryOf(quota, metav1.ConditionFalse, condition.InProgress), quota != nil && quota.Status == metav1.ConditionTrue
	},
	func(e *evaluation) (condition.Summary, bool) {
		progressing := meta.FindStatusCondition(e.status.Conditions, v1alpha1.ConditionProgressing)
		return summaryOf(progressing, metav1.ConditionFalse, condition.InProgress), true
	},
}

// summaryOf returns a summary with the reason and message of a condition, which may be absent.
func summaryOf(cause *metav1.Condition, ready metav1.ConditionStatus, progress condition.Progress) condition.Summary {
	summary := condition.Summary{Ready: ready, Progress: progress}
	if cause != nil {
		summary.Reason, summary.Message = cause.Reason, cause.Message
	}
	return summary
}

func stalledBy(cause *metav1.Condition) condition.Summary {
	return summaryOf(cause, metav1.ConditionFalse, condition.Stuck)
}

func (e *evaluation) setCondition(conditionType string, status metav1.ConditionStatus, reason, message string) {
	const maxConditionMessage = 32768 // bytes, the limit of metav1.Condition
	meta.SetStatusCondition(&e.status.Conditions, metav1.Condition{
		Type:               conditionType,
		Status:             status,
		ObservedGeneration: e.SequentialJob.Generation,
		LastTransitionTime: e.now,
		Reason:             reason,
		Message:            truncateBytes(message, maxConditionMessage),
	})
}
