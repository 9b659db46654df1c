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
func approvalOf(sj *v1alpha1.SequentialJob, step *v1alpha1.Step) v1alpha1.SequenceApproval {
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
func isApproved(f *facts, status *v1alpha1.SequentialJobStatus, record *v1alpha1.StepStatus, step *v1alpha1.Step) bool {
	if !step.Options().RequireApproval {
		return record.ApprovedBy == ""
	}
	return record.ApprovedBy != "" && status.Approval != nil && *status.Approval == approvalOf(f.with(status), step)
}

// consent is who lets a step start, or why it waits.
type consent struct {
	// by is the user who approved the step; empty if the step waits, or needs no approval.
	by string
	// isNew is true if the status does not record it yet.
	isNew bool
	// approval that the status shows from now on, and the parameters of the run, with the values of the approver.
	approval   *v1alpha1.SequenceApproval
	parameters []v1alpha1.Parameter
	// problem is why the step waits.
	problem decision.Problem
	notes
}

// consentTo returns whether a step may start. A step that needs an approval waits for it before its first attempt in
// each run, and before another attempt if its content has changed.
func consentTo(f *facts, status *v1alpha1.SequentialJobStatus, record *v1alpha1.StepStatus, step *v1alpha1.Step) consent {
	c := consent{approval: status.Approval, parameters: status.Parameters, notes: f.newNotes()}
	switch {
	case !step.Options().RequireApproval:
		return c
	case isApproved(f, status, record, step):
		c.by = record.ApprovedBy
		return c
	}
	wanted, given := approvalOf(f.with(status), step), ReadApproval(f.SequentialJob)
	c.approval, c.problem.Reason = &wanted, v1alpha1.ReasonApprovalRequired
	if given == nil || given.UID != wanted.UID || given.Run != wanted.Run || given.Step != wanted.Step { // as after each earlier approval
		return c
	}
	if given.Hash != wanted.Hash {
		c.problem.Message = fmt.Sprintf("the approval of %s is for other content: the step, its template or its parameters have changed", given.By)
		return c
	}
	parameters, err := ReplaceParameters(status.Parameters, given.Parameters)
	switch unprotected := f.Answers.UnprotectedApprovals; {
	case err != nil:
		c.problem.Message = fmt.Sprintf("the approval of %s has no effect: %s", given.By, err)
	case unprotected == nil:
		c.question = &Question{ApprovalPolicies: true}
	case *unprotected != "":
		c.timer.RequeueWithin(protectionRecheck)
		c.problem = decision.Problem{Reason: v1alpha1.ReasonUnprotected, Message: "the approval does not count, because nothing proves its author: " + *unprotected}
	default:
		changed := *status
		changed.Parameters = parameters
		c.approval, c.parameters, c.isNew = new(approvalOf(f.with(&changed), step)), parameters, true
		c.by = decision.TruncateMessage(given.By, maxMessageBytes)
	}
	return c
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
