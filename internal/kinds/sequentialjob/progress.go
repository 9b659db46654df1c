package sequentialjob

import (
	"cmp"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// progress is the run after what its steps proved, and what follows.
type progress struct {
	Actions
	status v1alpha1.SequentialJobStatus
	// blocked is why the next or active step does not start or continue; nil if it does.
	blocked *decision.Problem
	notes
}

// advance takes the outcome of the active step, decides what is next, and starts the step after it, until a step remains active.
func advance(f *facts, r *run) progress {
	p := progress{status: *r.status.DeepCopy(), blocked: r.blocked, notes: r.notes}
	started := ""
	for continues := r.proceeds; continues && p.question == nil; {
		if active := activeStep(p.status.Steps); active != nil {
			o := newOutcome(f, &p.status, active, started == active.Name)
			n := next{step: o.step, verdict: o.verdict, notes: o.notes}
			p = p.with(f, &n)
			switch {
			case p.question != nil:
				return p
			case o.isMissing:
				n = createJob(f, &p.status, &o, started == o.step.Name)
				p = p.with(f, &n)
			case o.job != nil && !IsTerminal(o.job):
				n = continueStep(f, &p.status, &o)
				p = p.with(f, &n)
			}
			if n.verdict.phase == "" {
				return p
			}
		}
		if orphans := orphansOf(f, &p.status); len(orphans) > 0 {
			p.DeleteJobs = append(p.DeleteJobs, orphans...)
			return p
		}
		p, continues = p.startNext(f)
		if step := activeStep(p.status.Steps); step != nil {
			started = step.Name
		}
	}
	return p
}

// with returns the progress after what happens next with the active step.
func (p progress) with(f *facts, n *next) progress {
	status, step := &p.status, activeStep(p.status.Steps)
	p.Actions, p.blocked, p.notes = n.Actions, n.blocked, p.and(n.notes)
	*step = n.step
	if f.SequentialJob.Status.StartTime == nil && step.JobUID != "" && step.StartTime.Before(status.StartTime) {
		status.StartTime = step.StartTime.DeepCopy() // the status of an earlier decision was lost
	}
	if n.exceedsDeadline && status.DeadlineExceededTime == nil {
		status.DeadlineExceededTime = f.now.DeepCopy()
	}
	if n.workspace != nil {
		status.Workspace = *n.workspace
	}
	if at := slices.IndexFunc(f.spec.Containers, func(s v1alpha1.Step) bool { return s.Name == step.Name }); n.specChanged {
		f.setCondition(status, v1alpha1.ConditionSpecAccepted, decision.False(v1alpha1.ReasonStartedStepChanged, startedStepChanged(at, step.Name).Error()))
	}
	if n.losesWorkspace { // the start time is kept, so that the run's deadline limits all restarts together
		status.Run++
		status.Steps, status.Workspace = mergeSteps(f.spec, nil), v1alpha1.ClaimStatus{}
		f.setCondition(status, v1alpha1.ConditionSpecAccepted, specValidity(f.SequentialJob))
	}
	if n.verdict.phase != "" {
		*step = retried(f, status, step, n.verdict).record(f, step)
	}
	return p
}

// record returns the record of a step with the verdict on its attempt.
func (v verdict) record(f *facts, attempt *v1alpha1.StepStatus) v1alpha1.StepStatus {
	step := *attempt
	switch v.phase {
	case v1alpha1.StepPending: // its Job was not created: the same attempt starts on resumption
		if step.Attempt <= 1 {
			return v1alpha1.StepStatus{Name: step.Name, Phase: v1alpha1.StepPending, ApprovedBy: step.ApprovedBy}
		}
		step.Phase, step.Reason = v1alpha1.StepInterrupted, v1alpha1.ReasonInterrupted
		step.Attempt--
	case v1alpha1.StepInterrupted, v1alpha1.StepLost:
		step.Phase, step.Reason = v.phase, v.reason
	default:
		step.Phase, step.Reason, step.Message = v.phase, v.reason, decision.TruncateMessage(v.message, maxMessageBytes)
		step.Tolerated, step.Output = v.tolerated, v.output
		step.CompletionTime = new(cmp.Or(v.finishTime, f.now))
		if step.NextAttemptTime = v.nextAttempt; v.nextAttempt != nil {
			step.FailedAttempts++
			step.FirstStartTime = v.firstStart
		}
	}
	return step
}

// orphansOf returns owned Jobs that may be running but belong to no step, for example because the status that
// recorded them was lost. Until all are deleted, no step starts.
func orphansOf(f *facts, status *v1alpha1.SequentialJobStatus) []*batchv1.Job {
	next := nextStep(status.Steps)
	var orphans []*batchv1.Job
	for _, job := range f.Jobs {
		// The next step adopts a Job that exists under the name of its first attempt.
		isAdoptable := next != nil && next.Run != status.Run && job.Name == jobName(f.SequentialJob, status.Run, next.Name, 1)
		if !IsTerminal(job) && !isAdoptable {
			orphans = append(orphans, job)
		}
	}
	return orphans
}

// startNext starts or skips the next step, or finishes the run. It reports whether the run continues.
func (p progress) startNext(f *facts) (progress, bool) {
	status := &p.status
	isFinally := func(name string) bool { return IsFinally(f.spec, name) }
	if step := nextStep(status.Steps); step != nil && !isFinally(step.Name) { // steps without finally cannot run after a failure or the run's deadline
		switch {
		case failedStep(status.Steps) != nil:
			skipWaitingSteps(status.Steps, v1alpha1.ReasonPreviousStepFailed, isFinally)
		case !f.spec.Suspend && !needsApproval(step) && exceedsDeadline(f, status):
			status.DeadlineExceededTime = cmp.Or(status.DeadlineExceededTime, f.now.DeepCopy())
			skipWaitingSteps(status.Steps, v1alpha1.ReasonDeadlineExceeded, isFinally)
		}
	}
	step := nextStep(status.Steps)
	if step == nil {
		status.CompletionTime = f.now.DeepCopy()
		return p, false
	}
	stepSpec := findStepSpec(f.spec, step.Name)
	fail := func(reason, message string) {
		*step = newFailure(f, status, step.Name, reason, message).record(f, step)
	}
	if f.spec.Suspend {
		if stepSpec != nil && needsApproval(step) && !isApproved(f, status, step, stepSpec) {
			status.Approval = new(approvalOf(f.with(status), stepSpec)) // it can be approved meanwhile
		}
		return p, false
	}
	if step.Run != status.Run && stepSpec != nil {
		isWanted, err := isWanted(f.with(status), stepSpec)
		if err != nil || !isWanted {
			step.Run, step.SpecHash = status.Run, stepHash(stepSpec)
			step.Phase, step.Reason, step.Message = v1alpha1.StepSkipped, v1alpha1.ReasonWhenFalse, ""
			if err != nil {
				fail(v1alpha1.ReasonWhenInvalid, err.Error())
			}
			return p, true
		}
	}
	if step.Phase == v1alpha1.StepRetrying && step.NextAttemptTime != nil && !p.timer.HasReached(step.NextAttemptTime.Time) {
		return p, false
	}
	if stepSpec == nil { // removed from the spec while its next attempt was due
		fail(v1alpha1.ReasonJobRejected, removedMessage)
		return p, true
	}
	c := consentTo(f, status, step, stepSpec)
	p.notes = p.and(c.notes)
	if status.Approval = c.approval; c.by == "" && stepSpec.Options().RequireApproval {
		step.ApprovedBy, step.Reason, step.Message = "", c.problem.Reason, decision.TruncateMessage(c.problem.Message, maxMessageBytes)
		return p, false
	}
	if c.isNew && needsApproval(step) && status.StartTime != nil {
		status.StartTime = f.now.DeepCopy() // restarts the run's deadline, as batch/v1 does when a Job is resumed
	}
	status.Parameters = c.parameters
	status.StartTime = cmp.Or(status.StartTime, f.now.DeepCopy())
	attempt, failedAttempts, reason, first := int32(1), int32(0), "", (*metav1.Time)(nil)
	if step.Run == status.Run {
		attempt, failedAttempts, reason, first = step.Attempt+1, step.FailedAttempts, step.Reason, step.FirstStartTime // the reason is why there is another attempt
	}
	// The Job of the attempt is created once it is known not to exist.
	*step = v1alpha1.StepStatus{
		Name:  step.Name,
		Phase: v1alpha1.StepStarting,
		JobAttempt: v1alpha1.JobAttempt{
			AttemptNumber: v1alpha1.AttemptNumber{Run: status.Run, Attempt: attempt},
			JobName:       jobName(f.SequentialJob, status.Run, step.Name, attempt),
			Times:         v1alpha1.Times{StartTime: f.now.DeepCopy()},
			Explanation:   v1alpha1.Explanation{Reason: reason},
		},
		FailedAttempts: failedAttempts,
		FirstStartTime: first,
		SpecHash:       stepHash(stepSpec),
		ApprovedBy:     c.by,
	}
	return p, true
}
