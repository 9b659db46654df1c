package sequentialjob

import (
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
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
	e := &evaluation{
		Observation: observation,
		spec:        &observation.SequentialJob.Spec,
		status:      *observation.SequentialJob.Status.DeepCopy(),
		now:         metav1.NewTime(observation.Now.Truncate(time.Second)), // the precision of the API
		timer:       decision.Timer{Now: observation.Now},
	}
	e.separateArchiveJobs()
	switch {
	case !IsManaged(e.SequentialJob):
	case !e.SequentialJob.DeletionTimestamp.IsZero():
		e.decideDeletion()
	default:
		e.decideProgress()
	}
	e.decision.Status, e.decision.RequeueAfter = e.status, e.timer.RequeueAfter
	if e.decision.Question == nil {
		stored := &e.SequentialJob.Status
		e.decision.StatusChanged = !equality.Semantic.DeepEqual(stored, &e.status)
		e.decision.Events = append(statusEvents(stored, &e.status), e.decision.Events...)
	}
	return e.decision
}

type evaluation struct {
	Observation
	spec     *v1alpha1.SequentialJobSpec
	status   v1alpha1.SequentialJobStatus
	now      metav1.Time
	timer    decision.Timer
	decision Decision
	// startedStep is the step that this decision starts. Its Job exists, with the same name, only if the record of an
	// earlier decision was lost.
	startedStep string
	// blockedBy is the refusal that delays the next step's Job.
	blockedBy *decision.Refusal
	// blocked is the problem that keeps the active step from starting or continuing; nil for none.
	blocked *decision.Problem
	// archiveJobs are the observed Jobs that archive logs, and archiveRefusal is the refusal of such a Job.
	// Observation.Jobs and Observation.Refusal do not contain them.
	archiveJobs    []*batchv1.Job
	archiveRefusal *decision.Refusal
	// forbiddenImages is why Policies do not allow the next step's Job; empty if they do.
	forbiddenImages string
}

// current returns the SequentialJob with the status that this decision records.
func (e *evaluation) current() *v1alpha1.SequentialJob {
	current := *e.SequentialJob
	current.Status = e.status
	return &current
}

func (e *evaluation) decideProgress() {
	e.observeSpec()
	e.startRequestedRerun()
	if !IsFinished(&e.status) {
		wasSuspended := meta.IsStatusConditionTrue(e.status.Conditions, v1alpha1.ConditionSuspended)
		if wasSuspended && !e.spec.Suspend && e.status.StartTime != nil && !needsApproval(nextStep(e.status.Steps)) {
			e.status.StartTime = e.now.DeepCopy() // the run's deadline restarts when the run is resumed
		}
		if e.admitRun() {
			e.advanceSteps()
		}
	}
	e.advanceArchive()
	if e.decision.Question != nil {
		return
	}
	deadline, hasDeadline := runDeadline(e.spec, &e.status)
	step, ttl := activeStep(e.status.Steps), e.spec.TTLSecondsAfterFinished
	switch {
	case IsFinished(&e.status) && IsRerunRequested(e.spec, &e.status) && CheckRerun(e.spec, &e.status) == nil:
		e.timer.RequeueWithin(time.Millisecond) // until the rerun starts, the SequentialJob must not expire
	case IsFinished(&e.status) && ttl != nil && !isArchiving(&e.status):
		e.decision.DeleteExpired = e.timer.HasReached(e.status.CompletionTime.Add(time.Duration(*ttl) * time.Second))
	case hasDeadline && step != nil && !IsFinally(e.spec, step.Name) && !isSuspendedBySpec(step) && e.Now.Before(deadline):
		e.timer.RequeueWithin(deadline.Sub(e.Now))
	}
	e.deleteOldJobs()
	e.summarize()
	// Pods of the step may be running, and deleting the SequentialJob has to stop them first.
	e.decision.NeedsFinalizer = step != nil && !isSuspendedBySpec(step)
}

// advanceSteps evaluates the active step and starts the next, until a step remains active.
func (e *evaluation) advanceSteps() {
	for {
		if step := activeStep(e.status.Steps); step != nil {
			verdict := e.withRetry(step, e.evaluateStep(step))
			if verdict.phase == "" {
				return
			}
			verdict.applyTo(step, e.now)
		}
		if e.deleteOrphans() || !e.startNextStep() {
			return
		}
	}
}

// startNextStep starts or skips the next step, or finishes the run. It reports whether advanceSteps continues.
func (e *evaluation) startNextStep() bool {
	e.skipUnreachableSteps()
	next := nextStep(e.status.Steps)
	if next == nil {
		e.status.CompletionTime = e.now.DeepCopy()
		return false
	}
	if e.spec.Suspend {
		if step := findStepSpec(e.spec, next.Name); step != nil && needsApproval(next) && !e.isApproved(next, step) {
			e.status.Approval = new(e.approvalOf(step)) // it can be approved meanwhile
		}
		return false
	}
	if next.Run != e.status.Run && e.skipUnwantedStep(next) {
		return true
	}
	if next.Phase == v1alpha1.StepRetrying && next.NextAttemptTime != nil && !e.timer.HasReached(next.NextAttemptTime.Time) {
		return false
	}
	approvedBy, mayStart := e.approve(next)
	if mayStart {
		e.startStep(next, approvedBy)
	}
	return mayStart
}

// skipUnwantedStep skips a step whose expression is false, and fails a step whose expression cannot be evaluated. It
// reports whether the step ended.
func (e *evaluation) skipUnwantedStep(step *v1alpha1.StepStatus) bool {
	stepSpec := findStepSpec(e.spec, step.Name)
	if stepSpec == nil {
		return false
	}
	wanted, err := isWanted(e.current(), stepSpec)
	if wanted && err == nil {
		return false
	}
	step.Run, step.SpecHash = e.status.Run, stepHash(stepSpec)
	if err != nil {
		e.failedWithoutJob(step, v1alpha1.ReasonWhenInvalid, err.Error()).applyTo(step, e.now)
		return true
	}
	step.Phase, step.Reason, step.Message = v1alpha1.StepSkipped, v1alpha1.ReasonWhenFalse, ""
	return true
}

// skipUnreachableSteps skips the steps that cannot run after a failure or the run's deadline: those without finally.
func (e *evaluation) skipUnreachableSteps() {
	isFinally := func(name string) bool { return IsFinally(e.spec, name) }
	switch next := nextStep(e.status.Steps); {
	case next == nil || isFinally(next.Name):
	case failedStep(e.status.Steps) != nil:
		skipWaitingSteps(e.status.Steps, v1alpha1.ReasonPreviousStepFailed, isFinally)
	case !e.spec.Suspend && !needsApproval(next) && e.exceedsDeadline():
		skipWaitingSteps(e.status.Steps, v1alpha1.ReasonDeadlineExceeded, isFinally)
	}
}

// startStep records that the step starts. Its Job is created once the Job is known not to exist.
func (e *evaluation) startStep(step *v1alpha1.StepStatus, approvedBy string) {
	stepSpec := findStepSpec(e.spec, step.Name)
	if stepSpec == nil { // removed from the spec while its next attempt was due
		e.failedWithoutJob(step, v1alpha1.ReasonJobRejected, removedMessage).applyTo(step, e.now)
		return
	}
	attempt, failedAttempts, reason := int32(1), int32(0), ""
	if step.Run == e.status.Run {
		attempt, failedAttempts, reason = step.Attempt+1, step.FailedAttempts, step.Reason // the reason is why there is another attempt
	}
	*step = v1alpha1.StepStatus{
		Name:  step.Name,
		Phase: v1alpha1.StepStarting,
		JobAttempt: v1alpha1.JobAttempt{
			AttemptNumber: v1alpha1.AttemptNumber{Run: e.status.Run, Attempt: attempt},
			JobName:       jobName(e.SequentialJob, e.status.Run, step.Name, attempt),
			Times:         v1alpha1.Times{StartTime: e.now.DeepCopy()},
			Explanation:   v1alpha1.Explanation{Reason: reason},
		},
		FailedAttempts: failedAttempts,
		SpecHash:       stepHash(stepSpec),
		ApprovedBy:     approvedBy,
	}
	e.startedStep = step.Name
	if e.status.StartTime == nil {
		e.status.StartTime = e.now.DeepCopy()
	}
}

// deleteOrphans deletes owned Jobs that may be running but belong to no step, for example because the status that
// recorded them was lost. It reports whether such a Job exists: until all are deleted, no step starts.
func (e *evaluation) deleteOrphans() bool {
	next := nextStep(e.status.Steps)
	found := false
	for _, job := range e.Jobs {
		// The next step adopts a Job that exists under the name of its first attempt.
		isAdoptable := next != nil && next.Run != e.status.Run &&
			job.Name == jobName(e.SequentialJob, e.status.Run, next.Name, 1)
		if IsTerminal(job) || isAdoptable {
			continue
		}
		found = true
		e.deleteJob(job)
	}
	return found
}

func (e *evaluation) deleteJob(job *batchv1.Job) {
	if job.DeletionTimestamp.IsZero() {
		e.decision.DeleteJobs = append(e.decision.DeleteJobs, job)
	}
}

// runDeadline returns the time at which the run exceeds its activeDeadlineSeconds.
func runDeadline(spec *v1alpha1.SequentialJobSpec, status *v1alpha1.SequentialJobStatus) (deadline time.Time, found bool) {
	if spec.ActiveDeadlineSeconds == nil || status.StartTime == nil {
		return time.Time{}, false
	}
	return status.StartTime.Add(time.Duration(*spec.ActiveDeadlineSeconds) * time.Second), true
}

// exceedsDeadline reports whether the run has exceeded its activeDeadlineSeconds, and records when the excess was first
// observed.
func (e *evaluation) exceedsDeadline() bool {
	deadline, found := runDeadline(e.spec, &e.status)
	if !found || e.Now.Before(deadline) {
		return false
	}
	if e.status.DeadlineExceededTime == nil {
		e.status.DeadlineExceededTime = e.now.DeepCopy()
	}
	return true
}

// decideDeletion deletes the running Jobs of a SequentialJob that is being deleted. The finalizer is removed once a
// live list shows that no Job runs; the garbage collector deletes the other objects.
func (e *evaluation) decideDeletion() {
	finalizers := e.SequentialJob.Finalizers
	if !slices.Contains(finalizers, v1alpha1.SequentialJobFinalizer) || slices.Contains(finalizers, metav1.FinalizerOrphanDependents) {
		return // with OrphanDependents the user keeps the Jobs
	}
	if !e.Answers.HasAllJobs {
		e.decision.Question = &Question{AllJobs: true}
		return
	}
	for _, job := range e.Jobs {
		if !IsTerminal(job) {
			e.decision.NeedsFinalizer = true
			e.deleteJob(job)
		}
	}
	if !e.decision.NeedsFinalizer {
		e.decision.Events = append(e.decision.Events, decision.NormalEvent(v1alpha1.EventTerminated, actionRun, "The SequentialJob is being deleted, and none of its Jobs is running any more"))
		return
	}
	e.status.Phase = v1alpha1.PhaseTerminating
	e.setCondition(v1alpha1.ConditionProgressing, decision.False(
		v1alpha1.ReasonTerminating, "the running step is being stopped because the SequentialJob is being deleted"))
}
