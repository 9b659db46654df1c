package sequentialjob

import (
	"cmp"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// IsManaged reports whether this operator reconciles the object.
func IsManaged(sj *v1alpha1.SequentialJob) bool {
	return sj.Spec.ManagedBy == nil || *sj.Spec.ManagedBy == v1alpha1.SequentialJobManager
}

// Decide decides what a SequentialJob does next.
func Decide(observation Observation) Decision {
	f := newFacts(observation)
	switch {
	case !IsManaged(f.SequentialJob):
		return Decision{Status: f.SequentialJob.Status}
	case !f.SequentialJob.DeletionTimestamp.IsZero():
		return decideDeletion(f)
	}
	r := newRun(f)
	p := advance(f, &r)
	a := archiveLogs(f, &p.status)
	if question := cmp.Or(p.question, a.question); question != nil {
		return Decision{Question: question, Status: f.SequentialJob.Status}
	}
	return report(f, &p, &a)
}

// facts are the observation, sorted. No stage changes them.
type facts struct {
	// Observation without the Jobs that archive logs, and without the refusal of such a Job, so that no stage takes them for Jobs of steps.
	Observation
	archiveJobs    []*batchv1.Job
	archiveRefusal *decision.Refusal
	spec           *v1alpha1.SequentialJobSpec
	// now is the time of the decision in the precision of the API.
	now metav1.Time
}

func newFacts(observation Observation) *facts {
	sj, archive := observation.SequentialJob, observation.SequentialJob.Status.Archive
	f := &facts{Observation: observation, spec: &sj.Spec, now: metav1.NewTime(observation.Now.Truncate(time.Second))}
	f.Jobs = make([]*batchv1.Job, 0, len(observation.Jobs))
	for _, job := range observation.Jobs {
		if isArchiveJob(sj, job) {
			f.archiveJobs = append(f.archiveJobs, job)
			continue
		}
		f.Jobs = append(f.Jobs, job)
	}
	if f.Refusal != nil && archive != nil && f.Refusal.Name == archiveJobName(sj, archive.Run) {
		f.archiveRefusal, f.Refusal = f.Refusal, nil
	}
	return f
}

// isArchiveJob reports whether an owned Job archives logs, by its name: other clients can change its labels.
func isArchiveJob(sj *v1alpha1.SequentialJob, job *batchv1.Job) bool {
	run, known := runOf(job)
	return known && strings.Contains(job.Name, "-"+archivePart+"-") && job.Name == archiveJobName(sj, run)
}

// with returns the SequentialJob with another status.
func (f *facts) with(status *v1alpha1.SequentialJobStatus) *v1alpha1.SequentialJob {
	sj := *f.SequentialJob
	sj.Status = *status
	return &sj
}

func (f *facts) setCondition(status *v1alpha1.SequentialJobStatus, conditionType string, state decision.State) {
	decision.SetState(&status.Conditions, f.SequentialJob.Generation, f.now, conditionType, state)
}

// notes are what a stage adds to the decision besides its own value.
type notes struct {
	// question that must be answered before the stage can decide; nil for none.
	question *Question
	events   []decision.Event
	// timer is when the stage would decide otherwise without a change of the observation.
	timer decision.Timer
}

func (f *facts) newNotes() notes { return notes{timer: decision.Timer{Now: f.Now}} }

// and returns the notes of two stages together.
func (n notes) and(others notes) notes {
	n.question = cmp.Or(n.question, others.question)
	n.events = slices.Concat(n.events, others.events)
	n.timer.RequeueAfter = decision.Earliest(n.timer.RequeueAfter, others.timer.RequeueAfter)
	return n
}

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
			switch {
			case n.verdict.phase == "":
				return p
			case !f.HasStored && !f.Answers.HasAllJobs: // another process may have started later steps
				p.question = &Question{AllJobs: true}
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
	*step = f.startedStep(status.Run, step.Name, attempt)
	step.Reason, step.FailedAttempts, step.FirstStartTime, step.SpecHash, step.ApprovedBy = reason, failedAttempts, first, stepHash(stepSpec), c.by
	return p, true
}

// startedStep returns the record of an attempt at a step that starts now.
func (f *facts) startedStep(run int32, name string, attempt int32) v1alpha1.StepStatus {
	return v1alpha1.StepStatus{Name: name, Phase: v1alpha1.StepStarting, JobAttempt: v1alpha1.JobAttempt{
		AttemptNumber: v1alpha1.AttemptNumber{Run: run, Attempt: attempt},
		JobName:       jobName(f.SequentialJob, run, name, attempt),
		Times:         v1alpha1.Times{StartTime: f.now.DeepCopy()},
	}}
}

// decideDeletion deletes the running Jobs of a SequentialJob that is being deleted. The finalizer is removed once a
// live list shows that no Job runs; the garbage collector deletes the other objects.
func decideDeletion(f *facts) Decision {
	d, finalizers := Decision{Status: *f.SequentialJob.Status.DeepCopy()}, f.SequentialJob.Finalizers
	switch {
	case !slices.Contains(finalizers, v1alpha1.SequentialJobFinalizer), slices.Contains(finalizers, metav1.FinalizerOrphanDependents):
		return d // with OrphanDependents the user keeps the Jobs
	case !f.Answers.HasAllJobs:
		d.Question = &Question{AllJobs: true}
		return d
	}
	d.Status = *caughtUp(f)
	for _, job := range f.Jobs {
		if !IsTerminal(job) {
			d.NeedsFinalizer = true
			d.DeleteJobs = append(d.DeleteJobs, job)
		}
	}
	if !d.NeedsFinalizer {
		d.Events = []decision.Event{decision.NormalEvent(v1alpha1.EventTerminated, actionRun, "The SequentialJob is being deleted, and none of its Jobs is running any more")}
		return d
	}
	d.Status.Phase = v1alpha1.PhaseTerminating
	f.setCondition(&d.Status, v1alpha1.ConditionProgressing, decision.False(
		v1alpha1.ReasonTerminating, "the running step is being stopped because the SequentialJob is being deleted"))
	return f.finish(d)
}

// finish completes a decision with what follows from the stored status.
func (f *facts) finish(d Decision) Decision {
	stored := &f.SequentialJob.Status
	if d.StatusChanged = !equality.Semantic.DeepEqual(stored, &d.Status); d.StatusChanged {
		d.RecordWithin = recordWithin(f, &d)
	}
	d.Events = append(statusEvents(stored, &d.Status), d.Events...)
	d.DeleteJobs = slices.DeleteFunc(d.DeleteJobs, func(job *batchv1.Job) bool { return !job.DeletionTimestamp.IsZero() })
	return d
}
