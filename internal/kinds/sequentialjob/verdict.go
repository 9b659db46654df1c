package sequentialjob

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

const (
	removedMessage  = "the step was removed from the spec before its Job was created"
	deadlineMessage = "the run exceeded its activeDeadlineSeconds"
)

// stepVerdict is how an attempt at a step ended. The zero value means that it has not, or that a
// question must be answered first.
type stepVerdict struct {
	// phase is Pending if the run was suspended before the step's Job was created, Interrupted
	// if suspension deleted the Job, Lost if the Job disappeared, and Retrying if it failed and the
	// step is tried again; the last three get a new attempt.
	phase           v1alpha1.StepPhase
	reason, message string
	// tolerated is true for a failure that does not fail the run.
	tolerated bool
	// output of a step that succeeded.
	output string
	// finishTime of the Job, zero if no Job reports it.
	finishTime metav1.Time
	// nextAttempt is when the next attempt of a step that is Retrying starts.
	nextAttempt *metav1.Time
}

// endsAttempt reports whether the step is no longer active.
func (v stepVerdict) endsAttempt() bool { return v.phase != "" }

// applyTo records the verdict on a step whose attempt ended.
func (v stepVerdict) applyTo(step *v1alpha1.StepStatus, now metav1.Time) {
	switch v.phase {
	case v1alpha1.StepPending:
		withdrawStart(step)
	case v1alpha1.StepInterrupted, v1alpha1.StepLost:
		step.Phase, step.Reason = v.phase, v.reason
	default:
		step.Phase, step.Reason, step.Message = v.phase, v.reason, decision.TruncateMessage(v.message, maxMessageBytes)
		step.Tolerated, step.Output = v.tolerated, v.output
		step.FinishTime = new(cmp.Or(v.finishTime, now))
		if step.NextAttemptTime = v.nextAttempt; v.nextAttempt != nil {
			step.FailedAttempts++
		}
	}
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
