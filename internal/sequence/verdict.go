package sequence

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/apierror"
	"github.com/yardmaster/yardmaster/internal/core"
)

const (
	// uidRecordDelay is the age of a Job at which its UID is recorded in the status. For a step
	// that ends earlier, the UID is recorded with its outcome, which saves a write for each
	// short step. docs/decisions/0007-lost-or-never-created.md describes what depends on it.
	uidRecordDelay = time.Minute
	// createdRecheck is the wait until a created Job is observed. A Job that was deleted before
	// the cache showed it is found to be lost then.
	createdRecheck = 10 * time.Second
	// startingRecheck is that wait for a step whose Job was refused before.
	startingRecheck = time.Second
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

func failedVerdict(reason, message string) stepVerdict {
	return stepVerdict{outcome: outcomeFailed, reason: reason, message: message}
}

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

// evaluateStep determines what happened to the active step. If the step remains active, it
// decides the actions on its Job.
func (e *evaluation) evaluateStep(step *v1alpha1.StepStatus) stepVerdict {
	job, presence := e.findJob(step)
	switch {
	case presence == jobUnknown:
		e.decision.Question = &Question{JobNamed: step.JobName}
		return verdictUnknown
	case presence == jobAbsent:
		return e.evaluateAbsentJob(step)
	case IsTerminal(job):
		return e.evaluateTerminalJob(step, job)
	}
	e.observeUnfinishedJob(step, job)
	if !job.DeletionTimestamp.IsZero() {
		return verdictActive // the Job exists until its Pods have stopped
	}
	switch step.Phase {
	case v1alpha1.StepStopping, v1alpha1.StepSuspending:
		e.deleteJob(job)
		return verdictActive
	}
	for _, rule := range stopRules {
		reason, message, found := rule(e, step, job)
		if e.decision.Question != nil {
			return verdictUnknown
		}
		if found {
			e.stopStep(step, job, v1alpha1.StepStopping, reason, message)
			return verdictActive
		}
	}
	if e.spec.Suspend {
		e.suspendStep(step, job)
	} else {
		e.resumeStep(step, job)
	}
	return verdictActive
}

// jobPresence is what is known about the existence of a Job.
type jobPresence string

const (
	jobFound   jobPresence = "Found"
	jobAbsent  jobPresence = "Absent"
	jobUnknown jobPresence = "Unknown"
)

// findJob returns the active step's Job. A cache that does not show the Job, or shows one of
// its name with another UID than expected, may be behind: then its presence is unknown.
func (e *evaluation) findJob(step *v1alpha1.StepStatus) (*batchv1.Job, jobPresence) {
	uid := step.JobUID
	if uid == "" {
		uid = e.CreatedJobs[step.JobName]
	}
	if job, read := e.Answers.JobsByName[step.JobName]; read {
		if job == nil || (uid != "" && job.UID != uid) {
			return nil, jobAbsent
		}
		return job, jobFound
	}
	nameObserved := false
	for _, job := range e.Jobs {
		if job.Name == step.JobName && job.UID == uid {
			return job, jobFound
		}
		nameObserved = nameObserved || job.Name == step.JobName
	}
	if e.startedStep == step.Name && uid == "" && !nameObserved {
		return nil, jobAbsent
	}
	return nil, jobUnknown
}

// evaluateAbsentJob evaluates a step whose Job does not exist.
func (e *evaluation) evaluateAbsentJob(step *v1alpha1.StepStatus) stepVerdict {
	_, wasCreated := e.CreatedJobs[step.JobName]
	switch {
	case step.Phase == v1alpha1.StepSuspending:
		return stepVerdict{outcome: outcomeInterrupted}
	case step.Phase == v1alpha1.StepStopping:
		return e.failedWithoutJob(step, step.Reason, step.Message)
	case step.JobUID == "" && !wasCreated:
		return e.createJob(step)
	case e.spec.OnLostJob == v1alpha1.LostJobRerun:
		return stepVerdict{outcome: outcomeLost}
	default:
		return e.failedWithoutJob(step, v1alpha1.ReasonJobLost, fmt.Sprintf("Job %s was deleted before its outcome was recorded", step.JobName))
	}
}

// failedWithoutJob returns the verdict of a failure that the Job does not report. The run's
// deadline is not a failure of the step that the step's options could tolerate.
func (e *evaluation) failedWithoutJob(step *v1alpha1.StepStatus, reason, message string) stepVerdict {
	verdict := failedVerdict(reason, message)
	if stepSpec := findStepSpec(e.spec, step.Name); stepSpec != nil {
		isDeadline := e.status.DeadlineExceededTime != nil && !step.Finally
		verdict.tolerated = stepSpec.Options().OnFailure == v1alpha1.OnFailureContinue && !isDeadline
	}
	return verdict
}

// createJob decides to create the Job of a started step, unless a rule ends the step first.
func (e *evaluation) createJob(step *v1alpha1.StepStatus) stepVerdict {
	if findStepSpec(e.spec, step.Name) != nil && e.spec.Suspend {
		return stepVerdict{outcome: outcomeNotStarted}
	}
	refusal := e.refusalOf(step)
	for _, rule := range rejectRules {
		if reason, message, found := rule(e, step, refusal); found {
			return e.failedWithoutJob(step, reason, message)
		}
	}
	e.blockedBy = refusal
	switch {
	case refusal != nil:
		step.Phase = v1alpha1.StepStarting
	case step.Phase == v1alpha1.StepStarting:
		e.requeueAfter(startingRecheck)
	default:
		e.requeueAfter(createdRecheck)
	}
	e.decision.Workspace = workspaceClaim(e.SequentialJob)
	e.decision.Outputs = outputsConfigMap(e.SequentialJob, &e.status)
	e.decision.CreateJob = stepJob(e.SequentialJob, findStepSpec(e.spec, step.Name), step.Run, step.Attempt)
	return verdictActive
}

// rejectRules are the reasons for which a step fails before its Job is created. The first that
// applies counts.
var rejectRules = []func(*evaluation, *v1alpha1.StepStatus, *core.Refusal) (reason, message string, found bool){
	func(e *evaluation, step *v1alpha1.StepStatus, _ *core.Refusal) (string, string, bool) {
		return v1alpha1.ReasonJobRejected, removedMessage, findStepSpec(e.spec, step.Name) == nil
	},
	func(_ *evaluation, _ *v1alpha1.StepStatus, refusal *core.Refusal) (string, string, bool) {
		if refusal == nil || canRetry(refusal) {
			return "", "", false
		}
		return v1alpha1.ReasonJobRejected, refusal.Message, true
	},
	func(e *evaluation, step *v1alpha1.StepStatus, _ *core.Refusal) (string, string, bool) {
		canExceed := !step.Finally && e.startedStep != step.Name
		return v1alpha1.ReasonDeadlineExceeded, deadlineMessage, canExceed && e.exceedsDeadline()
	},
}

// canRetry reports whether the object may be accepted later as it is: once a quota has room, or
// once another object no longer has its name.
func canRetry(refusal *core.Refusal) bool {
	return refusal.Class == apierror.QuotaExceeded || refusal.Class == apierror.AlreadyExists
}

// refusalOf returns the refusal of the step's Job, or of an object that all steps need.
func (e *evaluation) refusalOf(step *v1alpha1.StepStatus) *core.Refusal {
	if e.Refusal != nil && (e.Refusal.Step == "" || e.Refusal.Step == step.Name) {
		return e.Refusal
	}
	return nil
}

// evaluateTerminalJob returns the verdict of a Job that ended.
func (e *evaluation) evaluateTerminalJob(step *v1alpha1.StepStatus, job *batchv1.Job) stepVerdict {
	options := jobOptions(job)
	condition := core.FindEndCondition(job)
	failed := condition.Type == batchv1.JobFailed
	pods, known := e.Answers.PodsByJob[job.UID]
	if !known && (options.Outputs || (failed && job.Status.Failed > 0)) {
		e.decision.Question = &Question{PodsOf: job}
		return verdictUnknown
	}
	e.recordJob(step, job)
	verdict := stepVerdict{outcome: outcomeSucceeded, finishTime: condition.LastTransitionTime}
	switch {
	case failed:
		message := failureMessage(pods, step.Name)
		if message == "" {
			message = condition.Message
		}
		verdict.outcome, verdict.reason, verdict.message = outcomeFailed, condition.Reason, message
		verdict.tolerated = options.OnFailure == v1alpha1.OnFailureContinue
	case options.Outputs:
		verdict.output = terminationMessage(pods, step.Name)
	}
	return verdict
}

// recordJob records the step's Job, when it started, and the spec it was created from. That is
// not always the current spec, if the decision that created the Job was not recorded.
func (e *evaluation) recordJob(step *v1alpha1.StepStatus, job *batchv1.Job) {
	step.JobUID = job.UID
	if generation, err := strconv.ParseInt(job.Annotations[v1alpha1.AnnotationGeneration], 10, 64); err == nil {
		step.Generation = generation
		step.SpecHash = job.Annotations[v1alpha1.AnnotationSpecHash]
		step.TemplateHash = job.Annotations[v1alpha1.AnnotationTemplateHash]
	}
	started := job.CreationTimestamp
	if job.Status.StartTime != nil {
		started = *job.Status.StartTime
	}
	step.StartTime = started.DeepCopy()
	if e.SequentialJob.Status.StartTime == nil && started.Before(e.status.StartTime) {
		e.status.StartTime = started.DeepCopy() // the status of an earlier decision was lost
	}
}

// observeUnfinishedJob records a Job that has not ended.
func (e *evaluation) observeUnfinishedJob(step *v1alpha1.StepStatus, job *batchv1.Job) {
	if step.Phase == v1alpha1.StepStarting { // its Job was refused before
		step.Phase = v1alpha1.StepRunning
		e.recordJob(step, job)
	}
	if step.Phase != v1alpha1.StepRunning {
		return
	}
	age := e.Now.Sub(job.CreationTimestamp.Time)
	if step.JobUID == "" && age < uidRecordDelay {
		e.requeueAfter(uidRecordDelay - age)
		return
	}
	e.recordJob(step, job)
}

// stopRules are the reasons for which a step's Job is deleted and the step fails. The first
// that applies counts. A rule may set a question instead.
var stopRules = []func(*evaluation, *v1alpha1.StepStatus, *batchv1.Job) (reason, message string, found bool){
	stopAtRunDeadline,
	stopAtStartDeadline,
}

func stopAtRunDeadline(e *evaluation, step *v1alpha1.StepStatus, _ *batchv1.Job) (reason, message string, found bool) {
	canExceed := !step.Finally && step.Phase != v1alpha1.StepSuspended
	return v1alpha1.ReasonDeadlineExceeded, deadlineMessage, canExceed && e.exceedsDeadline()
}

func stopAtStartDeadline(e *evaluation, _ *v1alpha1.StepStatus, job *batchv1.Job) (reason, message string, found bool) {
	limit := jobOptions(job).StartDeadlineSeconds
	if limit == nil || job.Status.StartTime == nil || hasStartedPod(job) {
		return "", "", false
	}
	if left := job.Status.StartTime.Add(time.Duration(*limit) * time.Second).Sub(e.Now); left > 0 {
		e.requeueAfter(left)
		return "", "", false
	}
	pods, known := e.Answers.PodsByJob[job.UID]
	switch {
	case !known:
		e.decision.Question = &Question{PodsOf: job}
		return "", "", false
	case hasStartedContainer(pods):
		return "", "", false
	}
	message = fmt.Sprintf("no Pod started within %d s", *limit)
	if cause := waitingMessage(pods); cause != "" {
		message += ": " + cause
	}
	return v1alpha1.ReasonStartDeadlineExceeded, message, true
}

// stopStep deletes the step's Job. The step remains active until the Job no longer exists.
func (e *evaluation) stopStep(step *v1alpha1.StepStatus, job *batchv1.Job, phase v1alpha1.StepPhase, reason, message string) {
	e.recordJob(step, job)
	step.Phase, step.Reason, step.Message = phase, reason, core.TruncateMessage(message, maxMessageLength)
	e.deleteJob(job)
}

// suspendStep suspends a running Job if spec.suspendPolicy is Immediate.
func (e *evaluation) suspendStep(step *v1alpha1.StepStatus, job *batchv1.Job) {
	switch {
	case e.spec.SuspendPolicy != v1alpha1.SuspendImmediate:
	case isQueueManaged(job):
		// The queue would resume a Job that the operator suspends, but cannot resume a deleted Job.
		e.stopStep(step, job, v1alpha1.StepSuspending, v1alpha1.ReasonInterrupted, "suspended; a new Job is created when the run is resumed")
	case !isSuspended(job):
		e.decision.SuspendJob = job
		if step.Phase == v1alpha1.StepSuspended { // another client resumed it
			step.Phase = v1alpha1.StepRunning
			e.recordJob(step, job)
		}
	case hasStoppedPods(job):
		e.recordJob(step, job)
		step.Phase = v1alpha1.StepSuspended
	}
}

// resumeStep resumes a Job that this operator suspended. It does not resume a Job that another
// client suspended.
func (e *evaluation) resumeStep(step *v1alpha1.StepStatus, job *batchv1.Job) {
	if step.Phase == v1alpha1.StepSuspended {
		step.Phase = v1alpha1.StepRunning
	}
	if isSuspended(job) && job.Annotations[v1alpha1.AnnotationSuspended] != "" && !isQueueManaged(job) {
		e.decision.ResumeJob = job
	}
}

// hasStoppedPods reports whether a suspended Job has no Pods left.
func hasStoppedPods(job *batchv1.Job) bool {
	return hasTrueCondition(job, batchv1.JobSuspended) && job.Status.Active == 0 &&
		(job.Status.Terminating == nil || *job.Status.Terminating == 0)
}

// IsTerminal reports whether the Job ended and all its Pods have stopped. The conditions
// SuccessCriteriaMet and FailureTarget only announce the end: Pods may still be running.
func IsTerminal(job *batchv1.Job) bool { return core.FindEndCondition(job) != nil }

func hasTrueCondition(job *batchv1.Job, conditionType batchv1.JobConditionType) bool {
	return slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == conditionType && c.Status == corev1.ConditionTrue
	})
}

// IsRelevantUpdate reports whether a change of a Job can affect its SequentialJob. Most of what
// a Job reports while it runs does not.
func IsRelevantUpdate(before, after *batchv1.Job) bool {
	switch {
	case IsTerminal(after) != IsTerminal(before),
		after.DeletionTimestamp.IsZero() != before.DeletionTimestamp.IsZero(),
		isSuspended(after) != isSuspended(before),
		hasStoppedPods(after) != hasStoppedPods(before):
		return true
	default: // the start deadline counts from the Job's start time
		return jobOptions(after).StartDeadlineSeconds != nil && !after.Status.StartTime.Equal(before.Status.StartTime)
	}
}

func isSuspended(job *batchv1.Job) bool { return job.Spec.Suspend != nil && *job.Spec.Suspend }
