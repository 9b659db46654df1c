package sequentialjob

import (
	"encoding/json"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// Approval is the content of the annotation with which a user lets a step with requireApproval start.
type Approval struct {
	// Run and Step of the approved step. An approval of another run or step has no effect.
	Run  int32  `json:"run"`
	Step string `json:"step"`
	// By is the user who approves. The webhook rejects the name of another user.
	By string `json:"by"`
}

// ReadApproval returns the approval in the annotations of a SequentialJob; nil without a valid approval.
func ReadApproval(sj *v1alpha1.SequentialJob) *Approval {
	raw := sj.Annotations[v1alpha1.AnnotationApproval]
	approval := &Approval{}
	if raw == "" || json.Unmarshal([]byte(raw), approval) != nil || approval.By == "" {
		return nil
	}
	return approval
}

// AwaitingApproval returns the name of the step that starts as soon as a user approves it, or "".
func AwaitingApproval(sj *v1alpha1.SequentialJob) string {
	steps := sj.Status.Steps
	if next := nextStep(steps); activeStep(steps) == nil && needsApproval(next) && !IsFinished(&sj.Status) {
		return next.Name
	}
	return ""
}

func needsApproval(step *v1alpha1.StepStatus) bool {
	return step != nil && step.Reason == v1alpha1.ReasonApprovalRequired
}

// approve reports whether a step may start. A step that needs an approval waits for it before its first attempt in
// each run, and then records who approved it.
func (e *evaluation) approve(step *v1alpha1.StepStatus) (approvedBy string, mayStart bool) {
	stepSpec := findStepSpec(e.spec, step.Name)
	if stepSpec == nil || !stepSpec.Options().RequireApproval || step.Run == e.status.Run {
		return step.ApprovedBy, true
	}
	approval := ReadApproval(e.SequentialJob)
	if approval == nil || approval.Step != step.Name || approval.Run != e.status.Run {
		step.Reason = v1alpha1.ReasonApprovalRequired
		return "", false
	}
	if needsApproval(step) && e.status.StartTime != nil {
		e.status.StartTime = e.now.DeepCopy() // restarts the run's deadline, as batch/v1 does when a Job is resumed
	}
	return decision.TruncateMessage(approval.By, maxMessageBytes), true
}
