package sequentialjob

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

const (
	// uidRecordDelay is the age of a Job at which its UID is recorded in the status. If a step ends earlier, the UID is
	// recorded with its outcome, which saves a write. docs/decisions/0007-lost-or-never-created.md has the
	// consequences.
	uidRecordDelay = time.Minute
	// createdRecheck is the delay until a created Job is observed, so that a Job that was deleted before the cache
	// showed it is found to be lost within seconds.
	createdRecheck = time.Second
)

const (
	removedMessage  = "the step was removed from the spec before its Job was created"
	deadlineMessage = "the run exceeded its activeDeadlineSeconds"
)

// stepVerdict is how an attempt at a step ended. The zero value means that it has not ended, or that a question must be
// answered first.
type stepVerdict struct {
	// phase is Pending if the run was suspended before the step's Job was created, or if the content that was approved has
	// changed since. A new attempt follows after
	// Interrupted (suspension deleted the Job), Lost (the Job disappeared) and Retrying (the Job failed).
	phase           v1alpha1.StepPhase
	reason, message string
	// tolerated is true for a failure that does not fail the run.
	tolerated bool
	// output of the step.
	output string
	// finishTime of the Job; zero if no Job reports it.
	finishTime metav1.Time
	// nextAttempt is when a step that is Retrying starts its next attempt.
	nextAttempt *metav1.Time
}

func (v stepVerdict) applyTo(step *v1alpha1.StepStatus, now metav1.Time) {
	switch v.phase {
	case v1alpha1.StepPending: // its Job was not created: the same attempt starts on resumption
		if step.Attempt <= 1 {
			*step = v1alpha1.StepStatus{Name: step.Name, Phase: v1alpha1.StepPending, ApprovedBy: step.ApprovedBy}
			return
		}
		step.Phase, step.Reason = v1alpha1.StepInterrupted, v1alpha1.ReasonInterrupted
		step.Attempt--
	case v1alpha1.StepInterrupted, v1alpha1.StepLost:
		step.Phase, step.Reason = v.phase, v.reason
	default:
		step.Phase, step.Reason, step.Message = v.phase, v.reason, decision.TruncateMessage(v.message, maxMessageBytes)
		step.Tolerated, step.Output = v.tolerated, v.output
		step.CompletionTime = new(cmp.Or(v.finishTime, now))
		if step.NextAttemptTime = v.nextAttempt; v.nextAttempt != nil {
			step.FailedAttempts++
		}
	}
}

// evaluateStep determines what happened to the active step. If the step remains active, it
// decides the actions on its Job.
func (e *evaluation) evaluateStep(step *v1alpha1.StepStatus) stepVerdict {
	job, presence := findJob(&e.Observation, step, e.startedStep == step.Name)
	switch {
	case presence == jobUnknown:
		e.decision.Question = &Question{JobNamed: step.JobName}
		return stepVerdict{}
	case step.Reason == v1alpha1.ReasonContainerEnded && (presence == jobAbsent || IsTerminal(job)):
		return stepVerdict{phase: v1alpha1.StepSucceeded, output: step.Output}
	case presence == jobAbsent:
		return e.evaluateAbsentJob(step)
	case IsTerminal(job):
		return e.evaluateTerminalJob(step, job)
	}
	e.observeUnfinishedJob(step, job)
	if !job.DeletionTimestamp.IsZero() {
		return stepVerdict{} // the Job exists until its Pods have stopped
	}
	switch {
	case isBeingReplaced(step) && e.replaceJob(step, job):
		return stepVerdict{}
	case step.Phase == v1alpha1.StepStopping || step.Phase == v1alpha1.StepSuspending:
		e.deleteJob(job)
		return stepVerdict{}
	}
	left := findLeftover(podsOf(e.Pods, job.UID), job)
	endsWithStep := e.spec.Template != nil && e.spec.Template.EndWithStep
	switch problem := e.stopProblem(step, job); {
	case left != nil && hasOnePod(job) && (problem != nil || endsWithStep && left.isDue(&e.timer)):
		e.stopWithResult(step, job, left)
	case problem != nil:
		e.stopStep(step, job, v1alpha1.StepStopping, *problem)
	case e.decision.Question == nil && !e.replaceJob(step, job):
		e.reportChangedStep(step)
		e.suspendOrResume(step, job)
	}
	return stepVerdict{}
}

type jobPresence string

const (
	jobFound   jobPresence = "Found"
	jobAbsent  jobPresence = "Absent"
	jobUnknown jobPresence = "Unknown"
)

// findJob returns the active step's Job. If the cache does not show the Job, or shows another UID under its name, the
// cache may be stale, and the presence is unknown unless this decision starts the step.
func findJob(o *Observation, step *v1alpha1.StepStatus, isStartedNow bool) (*batchv1.Job, jobPresence) {
	uid := step.JobUID
	if uid == "" {
		uid = o.CreatedJobs[step.JobName]
	}
	if job, read := o.Answers.JobsByName[step.JobName]; read {
		if job == nil || (uid != "" && job.UID != uid) {
			return nil, jobAbsent
		}
		return job, jobFound
	}
	nameObserved := false
	for _, job := range o.Jobs {
		if job.Name == step.JobName && job.UID == uid {
			return job, jobFound
		}
		nameObserved = nameObserved || job.Name == step.JobName
	}
	if isStartedNow && uid == "" && !nameObserved {
		return nil, jobAbsent
	}
	return nil, jobUnknown
}

func (e *evaluation) evaluateAbsentJob(step *v1alpha1.StepStatus) stepVerdict {
	_, wasCreated := e.CreatedJobs[step.JobName]
	switch {
	case isBeingReplaced(step):
		return e.evaluateReplacedJob(step)
	case step.Phase == v1alpha1.StepSuspending:
		return stepVerdict{phase: v1alpha1.StepInterrupted, reason: v1alpha1.ReasonInterrupted}
	case step.Phase == v1alpha1.StepStopping:
		return e.failedWithoutJob(step, step.Reason, step.Message)
	case step.JobUID == "" && !wasCreated:
		return e.createJob(step)
	case e.spec.OnLostJob == v1alpha1.LostJobRerun:
		return stepVerdict{phase: v1alpha1.StepLost, reason: v1alpha1.ReasonJobLost}
	default:
		return e.failedWithoutJob(step, v1alpha1.ReasonJobLost,
			fmt.Sprintf("Job %s was deleted before its outcome was recorded, by a client, or by a ttlSecondsAfterFinished that a policy of the cluster set", step.JobName))
	}
}

// failedWithoutJob returns the verdict of a failure that the Job does not report. The step's options cannot tolerate
// that the run exceeded its deadline.
func (e *evaluation) failedWithoutJob(step *v1alpha1.StepStatus, reason, message string) stepVerdict {
	verdict := stepVerdict{phase: v1alpha1.StepFailed, reason: reason, message: message}
	if stepSpec := findStepSpec(e.spec, step.Name); stepSpec != nil {
		isDeadline := e.status.DeadlineExceededTime != nil && !stepSpec.Options().Finally
		verdict.tolerated = stepSpec.Options().OnFailure == v1alpha1.OnFailureContinue && !isDeadline
	}
	return verdict
}

// createJob decides to create the Job of a started step, unless the step ends without a Job.
func (e *evaluation) createJob(step *v1alpha1.StepStatus) stepVerdict {
	stepSpec, refusal := findStepSpec(e.spec, step.Name), e.Refusal
	if refusal != nil && refusal.Step != "" && refusal.Step != step.Name {
		refusal = nil // of another step's object
	}
	switch {
	case stepSpec == nil:
		return e.failedWithoutJob(step, v1alpha1.ReasonJobRejected, removedMessage)
	case e.spec.Suspend, !e.isApproved(step, stepSpec):
		return stepVerdict{phase: v1alpha1.StepPending}
	case overlayError(e.SequentialJob, stepSpec) != nil:
		return e.failedWithoutJob(step, v1alpha1.ReasonJobRejected, "podTemplate: "+overlayError(e.SequentialJob, stepSpec).Error())
	case refusal != nil && !canRetry(refusal):
		return e.failedWithoutJob(step, v1alpha1.ReasonJobRejected, refusal.Message)
	case !stepSpec.Options().Finally && e.startedStep != step.Name && e.exceedsDeadline():
		return e.failedWithoutJob(step, v1alpha1.ReasonDeadlineExceeded, deadlineMessage)
	case e.hasForbiddenImage(stepJob(e.current(), stepSpec, step.Run, step.Attempt)):
		step.Phase = v1alpha1.StepStarting
		return stepVerdict{}
	}
	if e.spec.Workspace != nil {
		if canUse, verdict := e.prepareWorkspace(step, refusal); !canUse {
			return verdict
		}
	}
	if refusal == nil {
		e.timer.RequeueWithin(createdRecheck)
	}
	step.Phase, step.SpecHash, e.blockedBy = v1alpha1.StepStarting, stepHash(stepSpec), refusal
	e.decision.Outputs = outputsConfigMap(e.SequentialJob, &e.status)
	e.decision.CreateJob = stepJob(e.current(), stepSpec, step.Run, step.Attempt)
	return stepVerdict{}
}

// canRetry reports whether the unchanged object may be accepted later: once a quota has room, its name is free, or, for
// a Pod, the namespace allows it.
func canRetry(refusal *decision.Refusal) bool {
	return refusal.Class == decision.QuotaExceeded || refusal.Class == decision.AlreadyExists ||
		refusal.Kind == podKind && refusal.Class != decision.Invalid
}

func (e *evaluation) evaluateTerminalJob(step *v1alpha1.StepStatus, job *batchv1.Job) stepVerdict {
	options := jobOptions(job)
	condition := decision.FindEndCondition(job)
	evidence := e.evidenceOf(job)
	// A deadline may end a Pod in which only containers of others run.
	hasEndedBefore := condition.Reason == batchv1.JobReasonDeadlineExceeded && hasOnePod(job) && evidence.success != nil
	failed := condition.Type == batchv1.JobFailed && !hasEndedBefore
	if verdict, waits := e.doubt(step, job, &evidence); waits || verdict.phase != "" {
		return verdict
	}
	pods, known := e.Answers.PodsByJob[job.UID]
	if !known && (options.Outputs && evidence.success == nil || failed && job.Status.Failed > 0) {
		e.decision.Question = &Question{PodsOf: job}
		return stepVerdict{}
	}
	e.recordJob(step, job)
	step.FailedPods = job.Status.Failed
	message := failureMessage(pods)
	if end := evidence.failure; end != nil {
		step.ExitCode, message = &end.ExitCode, exitMessage(step.Name, end)
	}
	verdict := stepVerdict{phase: v1alpha1.StepSucceeded, finishTime: condition.LastTransitionTime}
	switch {
	case failed:
		verdict.phase, verdict.reason = v1alpha1.StepFailed, condition.Reason
		if condition.Reason == batchv1.JobReasonDeadlineExceeded {
			verdict.reason = v1alpha1.ReasonStepDeadlineExceeded // DeadlineExceeded is the reason of a run's failure
		}
		verdict.message = cmp.Or(message, condition.Message)
		if indexes := ptr.Deref(job.Status.FailedIndexes, ""); indexes != "" {
			verdict.message = "failed indexes " + indexes + ": " + verdict.message
		}
		verdict.tolerated = options.OnFailure == v1alpha1.OnFailureContinue
	case options.Outputs:
		output, problem := readOutput(job, cmp.Or(evidence.success, newestPod(pods, corev1.PodSucceeded)), step.Name)
		verdict.output = output
		if problem != nil {
			verdict.phase, verdict.reason, verdict.message = v1alpha1.StepFailed, problem.Reason, problem.Message
			verdict.tolerated = options.OnFailure == v1alpha1.OnFailureContinue
		}
	}
	return verdict
}

// recordJob records the step's Job, when it started, and the spec that it was created from, which may not be the
// current spec if the decision that created the Job was not recorded.
func (e *evaluation) recordJob(step *v1alpha1.StepStatus, job *batchv1.Job) {
	step.JobUID = job.UID
	if specHash, found := job.Annotations[v1alpha1.AnnotationSpecHash]; found {
		step.SpecHash = specHash
	}
	started := ptr.Deref(job.Status.StartTime, job.CreationTimestamp)
	step.StartTime = started.DeepCopy()
	if e.SequentialJob.Status.StartTime == nil && started.Before(e.status.StartTime) {
		e.status.StartTime = started.DeepCopy() // the status of an earlier decision was lost
	}
}

// observeUnfinishedJob records a Job that has not ended, and failures of its Pods. It may set a question instead,
// because the exit code is in the Pod. Pods of a step with several Pods are not listed, because many may fail.
func (e *evaluation) observeUnfinishedJob(step *v1alpha1.StepStatus, job *batchv1.Job) {
	if step.Phase != v1alpha1.StepRunning && step.Phase != v1alpha1.StepStarting {
		return
	}
	if step.JobUID != "" || e.timer.HasReached(job.CreationTimestamp.Add(uidRecordDelay)) {
		e.recordJob(step, job)
	}
	if job.Status.Failed <= step.FailedPods {
		return
	}
	if _, known := e.Answers.PodsByJob[job.UID]; !known && hasOnePod(job) {
		e.decision.Question = &Question{PodsOf: job}
		return
	}
	e.recordJob(step, job)
	step.FailedPods = job.Status.Failed
	if evidence := e.evidenceOf(job); evidence.failure != nil {
		step.ExitCode = &evidence.failure.ExitCode
	}
}

// stopProblem returns why the step's Job must be deleted and the step fails; nil if it continues. It may set a question
// instead.
func (e *evaluation) stopProblem(step *v1alpha1.StepStatus, job *batchv1.Job) *decision.Problem {
	if !jobOptions(job).Finally && !isSuspendedBySpec(step) && e.exceedsDeadline() {
		return &decision.Problem{Reason: v1alpha1.ReasonDeadlineExceeded, Message: deadlineMessage}
	}
	limit := jobOptions(job).StartDeadlineSeconds
	if limit == nil || job.Status.StartTime == nil || hasStartedPod(job) ||
		!e.timer.HasReached(job.Status.StartTime.Add(time.Duration(*limit)*time.Second)) {
		return nil
	}
	pods, known := e.Answers.PodsByJob[job.UID]
	switch {
	case slices.ContainsFunc(podsOf(e.Pods, job.UID), func(pod *corev1.Pod) bool { return hasStarted(pod, step.Name) }):
		return nil
	case !known:
		e.decision.Question = &Question{PodsOf: job}
		return nil
	case slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return hasStarted(&pod, step.Name) }):
		return nil
	}
	message := decision.FormatReason(fmt.Sprintf("container %s did not start within %d s", step.Name, *limit), waitingMessage(pods))
	return &decision.Problem{Reason: v1alpha1.ReasonStartDeadlineExceeded, Message: message}
}

// stopStep deletes the step's Job. The step remains active until the Job no longer exists.
func (e *evaluation) stopStep(step *v1alpha1.StepStatus, job *batchv1.Job, phase v1alpha1.StepPhase, problem decision.Problem) {
	e.recordJob(step, job)
	step.Phase, step.Reason, step.Message = phase, problem.Reason, decision.TruncateMessage(problem.Message, maxMessageBytes)
	e.deleteJob(job)
}

// suspendOrResume suspends a running Job if spec.suspendPolicy is Immediate, and resumes a Job that this operator, not
// another client, suspended.
func (e *evaluation) suspendOrResume(step *v1alpha1.StepStatus, job *batchv1.Job) {
	switch {
	case !e.spec.Suspend:
		e.resume(step, job)
	case e.spec.SuspendPolicy != v1alpha1.SuspendImmediate:
		e.observeStart(step, job)
	case isQueueManaged(job):
		// The queue would resume a Job that the operator suspends, but cannot resume a deleted Job.
		e.stopStep(step, job, v1alpha1.StepSuspending, decision.Problem{
			Reason: v1alpha1.ReasonInterrupted, Message: "suspended; a new Job is created when the run is resumed",
		})
	case !isSuspended(job):
		e.decision.SuspendJob = job
		if isSuspendedBySpec(step) { // another client resumed it
			step.Phase = v1alpha1.StepStarting
			e.recordJob(step, job)
		}
	case hasStoppedPods(job):
		e.recordJob(step, job)
		step.Phase, step.Reason, step.Message = v1alpha1.StepSuspended, "", ""
	}
}

// resume resumes a Job that this operator suspended. A Job whose workspace was lost meanwhile is deleted instead, and
// the next attempt fails or restarts the run before its Job is created.
func (e *evaluation) resume(step *v1alpha1.StepStatus, job *batchv1.Job) {
	mustResume := isSuspended(job) && job.Annotations[v1alpha1.AnnotationSuspended] != "" && !isQueueManaged(job)
	if mustResume && e.spec.Workspace != nil {
		claim, read := e.Answers.Claims[WorkspaceName(e.SequentialJob)]
		if !read {
			e.decision.Question = &Question{Claim: WorkspaceName(e.SequentialJob)}
			return
		}
		if loss := workspaceLoss(e.SequentialJob, e.status.Workspace.UID, claim); loss != "" {
			e.stopStep(step, job, v1alpha1.StepSuspending, decision.Problem{Reason: v1alpha1.ReasonWorkspaceLost, Message: loss})
			return
		}
	}
	if isSuspendedBySpec(step) {
		step.Phase = v1alpha1.StepStarting
	}
	if mustResume {
		e.decision.ResumeJob = job
		return
	}
	e.observeStart(step, job)
}
