package sequentialjob

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	batchv1 "k8s.io/api/batch/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

const (
	// maxParameterLength is the limit of the CRD.
	maxParameterLength = 1024
	// protectionRecheck is the delay until the policy about approvals is read again.
	protectionRecheck = 10 * time.Second
)

// Approval is how a user lets a step with requireApproval start: two annotations, set in one request.
type Approval struct {
	// SequenceApproval repeats status.approval. An approval of anything else has no effect.
	v1alpha1.SequenceApproval `json:",inline"`
	// Parameters replace values of the run from this step on.
	Parameters []v1alpha1.Parameter `json:"parameters,omitempty"`
	// By is the user who approves. An admission policy refuses the name of another user.
	By string `json:"-"`
}

// ReadApproval returns the approval in the annotations of a SequentialJob; nil without a valid approval.
func ReadApproval(sj *v1alpha1.SequentialJob) *Approval {
	raw := sj.Annotations[v1alpha1.AnnotationApproval]
	approval := &Approval{By: sj.Annotations[v1alpha1.AnnotationApprovedBy]}
	if raw == "" || approval.By == "" || json.Unmarshal([]byte(raw), approval) != nil {
		return nil
	}
	return approval
}

// Write sets the annotations of a SequentialJob.
func (a *Approval) Write(sj *v1alpha1.SequentialJob) error {
	raw, err := json.Marshal(a)
	if err != nil {
		return err
	}
	if sj.Annotations == nil {
		sj.Annotations = map[string]string{}
	}
	sj.Annotations[v1alpha1.AnnotationApproval], sj.Annotations[v1alpha1.AnnotationApprovedBy] = string(raw), a.By
	return nil
}

// AwaitingApproval returns the name of the step that starts as soon as a user approves it, or "".
func AwaitingApproval(sj *v1alpha1.SequentialJob) string {
	steps := sj.Status.Steps
	if next := nextStep(steps); activeStep(steps) == nil && needsApproval(next) && !IsFinished(&sj.Status) {
		return next.Name
	}
	return ""
}

// AwaitingJob returns the Job that an approval lets start, as the operator builds it; nil if no step waits for an approval.
func AwaitingJob(sj *v1alpha1.SequentialJob) *batchv1.Job {
	step := findStepSpec(&sj.Spec, AwaitingApproval(sj))
	if step == nil {
		return nil
	}
	return approvedJob(sj, step)
}

func needsApproval(step *v1alpha1.StepStatus) bool {
	return step != nil && (step.Reason == v1alpha1.ReasonApprovalRequired || step.Reason == v1alpha1.ReasonUnprotected)
}

// approvedJob returns the Job of a step without what differs between the attempts of the same content.
func approvedJob(sj *v1alpha1.SequentialJob, step *v1alpha1.Step) *batchv1.Job {
	job := stepJob(sj, step, sj.Status.Run, 1)
	delete(job.Annotations, v1alpha1.AnnotationGeneration)
	delete(job.Annotations, v1alpha1.AnnotationContentHash)
	return job
}

// approvalOf returns what an approval of the step has to repeat. The hash is of the Job itself, so that no field of the spec can be
// missing in it, and of the outputs that the Job refers to. Nothing is normalized: a difference too many asks again, one too few
// would run what nobody approved.
func (e *evaluation) approvalOf(step *v1alpha1.Step) v1alpha1.SequenceApproval {
	sj := e.current()
	outputs := map[string]string{}
	for i := range sj.Spec.Containers {
		earlier := &sj.Spec.Containers[i]
		if earlier.Name == step.Name {
			break
		}
		if record := findStep(sj.Status.Steps, earlier.Name); record != nil && earlier.Options().Outputs {
			outputs[earlier.Name] = record.Output
		}
	}
	hash := decision.ContentHash([]any{approvedJob(sj, step), outputs}, 2*sha256.Size) //nolint:mnd // hexadecimal digits
	return v1alpha1.SequenceApproval{UID: sj.UID, Run: sj.Status.Run, Step: step.Name, Hash: hash}
}

// isApproved reports whether the recorded approval of a step is for the content that would run now.
func (e *evaluation) isApproved(record *v1alpha1.StepStatus, step *v1alpha1.Step) bool {
	if !step.Options().RequireApproval {
		return record.ApprovedBy == ""
	}
	return record.ApprovedBy != "" && e.status.Approval != nil && *e.status.Approval == e.approvalOf(step)
}

// approve reports whether a step may start. A step that needs an approval waits for it before its first attempt in
// each run, and before another attempt if its content has changed. It then records who approved it. It may set a question instead.
func (e *evaluation) approve(record *v1alpha1.StepStatus) (approvedBy string, mayStart bool) {
	step := findStepSpec(e.spec, record.Name)
	switch {
	case step == nil || !step.Options().RequireApproval:
		return "", true
	case e.isApproved(record, step):
		return record.ApprovedBy, true
	}
	wanted := e.approvalOf(step)
	e.status.Approval, record.ApprovedBy = &wanted, ""
	parameters, problem := e.readApproval(&wanted)
	switch {
	case problem != nil && problem.Reason == "": // a question
		return "", false
	case problem != nil:
		record.Reason, record.Message = problem.Reason, decision.TruncateMessage(problem.Message, maxMessageBytes)
		return "", false
	}
	if needsApproval(record) && e.status.StartTime != nil {
		e.status.StartTime = e.now.DeepCopy() // restarts the run's deadline, as batch/v1 does when a Job is resumed
	}
	e.status.Parameters = parameters
	approved := e.approvalOf(step) // with the values of the approver
	e.status.Approval = &approved
	return decision.TruncateMessage(ReadApproval(e.SequentialJob).By, maxMessageBytes), true
}

// readApproval returns the parameters of the run with the values of an approval, or why the step waits. A problem without a reason
// is a question.
func (e *evaluation) readApproval(wanted *v1alpha1.SequenceApproval) ([]v1alpha1.Parameter, *decision.Problem) {
	required := func(message string) *decision.Problem {
		return &decision.Problem{Reason: v1alpha1.ReasonApprovalRequired, Message: message}
	}
	approval := ReadApproval(e.SequentialJob)
	if approval == nil {
		return nil, required("")
	}
	if approval.UID != wanted.UID || approval.Run != wanted.Run || approval.Step != wanted.Step {
		return nil, required("") // as after each earlier approval
	}
	if approval.Hash != wanted.Hash {
		return nil, required(fmt.Sprintf("the approval of %s is for other content: the step, its template or its parameters have changed", approval.By))
	}
	parameters, err := ReplaceParameters(e.status.Parameters, approval.Parameters)
	if err != nil {
		return nil, required(fmt.Sprintf("the approval of %s has no effect: %s", approval.By, err))
	}
	switch unprotected := e.Answers.UnprotectedApprovals; {
	case unprotected == nil:
		e.decision.Question = &Question{ApprovalPolicies: true}
		return nil, &decision.Problem{}
	case *unprotected != "":
		e.timer.RequeueWithin(protectionRecheck)
		return nil, &decision.Problem{Reason: v1alpha1.ReasonUnprotected, Message: "the approval does not count, because nothing proves its author: " + *unprotected}
	}
	return parameters, nil
}

// ReplaceParameters returns parameters with other values. It returns an error for a value that the spec could not have.
func ReplaceParameters(parameters, values []v1alpha1.Parameter) ([]v1alpha1.Parameter, error) {
	replaced := slices.Clone(parameters)
	for i, value := range values {
		named := func(p v1alpha1.Parameter) bool { return p.Name == value.Name }
		at := slices.IndexFunc(replaced, named)
		switch {
		case at < 0:
			return nil, fmt.Errorf("the run has no parameter %q", value.Name)
		case slices.ContainsFunc(values[:i], named):
			return nil, fmt.Errorf("parameter %q has two values", value.Name)
		case utf8.RuneCountInString(value.Value) > maxParameterLength:
			return nil, fmt.Errorf("parameter %q has more than %d characters", value.Name, maxParameterLength)
		}
		replaced[at].Value = value.Value
	}
	return replaced, nil
}
