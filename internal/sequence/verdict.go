package sequence

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/core"
)

const (
	removedMessage  = "the step was removed from the spec before its Job was created"
	deadlineMessage = "the run exceeded its activeDeadlineSeconds"
)

// stepOutcome is what happened to an attempt at a step.
type stepOutcome string

const (
	// outcomeUnknown means that a question must be answered first.
	outcomeUnknown stepOutcome = "Unknown"
	// outcomeActive means that the attempt continues.
	outcomeActive stepOutcome = "Active"
	// outcomeNotStarted means that the run was suspended before the step's Job was created.
	outcomeNotStarted stepOutcome = "NotStarted"
	// outcomeInterrupted means that suspension deleted the Job; the step gets a new attempt.
	outcomeInterrupted stepOutcome = "Interrupted"
	// outcomeLost means that the Job disappeared and the step gets a new attempt.
	outcomeLost      stepOutcome = "Lost"
	outcomeSucceeded stepOutcome = "Succeeded"
	outcomeFailed    stepOutcome = "Failed"
)

// stepVerdict is the result of evaluating the active step.
type stepVerdict struct {
	outcome         stepOutcome
	reason, message string
	// tolerated is true for a failure that does not fail the run.
	tolerated bool
	// output of a step that succeeded.
	output string
	// finishTime of the Job, zero if no Job reports it.
	finishTime metav1.Time
}

var (
	verdictUnknown = stepVerdict{outcome: outcomeUnknown}
	verdictActive  = stepVerdict{outcome: outcomeActive}
)

// endsAttempt reports whether the step is no longer active.
func (v stepVerdict) endsAttempt() bool {
	return v.outcome != outcomeUnknown && v.outcome != outcomeActive
}

// applyTo records the verdict on a step whose attempt ended.
func (v stepVerdict) applyTo(step *v1alpha1.StepStatus, now metav1.Time) {
	switch v.outcome {
	case outcomeNotStarted:
		withdrawStart(step)
		return
	case outcomeInterrupted:
		step.Phase, step.Reason = v1alpha1.StepInterrupted, v1alpha1.ReasonInterrupted
		return
	case outcomeLost:
		step.Phase, step.Reason = v1alpha1.StepLost, v1alpha1.ReasonJobLost
		return
	case outcomeSucceeded:
		step.Phase = v1alpha1.StepSucceeded
	case outcomeFailed:
		step.Phase = v1alpha1.StepFailed
	}
	step.Reason, step.Message = v.reason, core.TruncateMessage(v.message, maxMessageLength)
	step.Tolerated, step.Output = v.tolerated, v.output
	if v.finishTime.IsZero() {
		v.finishTime = now
	}
	step.FinishTime = v.finishTime.DeepCopy()
}

// withdrawStart returns a step whose Job was not created to the state before its start, so that
// the same attempt starts on resumption.
func withdrawStart(step *v1alpha1.StepStatus) {
	if step.Attempt <= 1 {
		*step = v1alpha1.StepStatus{Name: step.Name, Finally: step.Finally, Phase: v1alpha1.StepPending}
		return
	}
	step.Phase, step.Reason = v1alpha1.StepInterrupted, v1alpha1.ReasonInterrupted
	step.Attempt--
}
