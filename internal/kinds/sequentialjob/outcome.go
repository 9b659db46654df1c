package sequentialjob

import (
	"cmp"
	"fmt"
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
	// maxPodLag is how long after the end of a Job the cache may still not show how the Job's Pods ended.
	maxPodLag = 10 * time.Second
	// evidenceRetry is when the next decision observes the Pods again.
	evidenceRetry = time.Second
)

const (
	removedMessage  = "the step was removed from the spec before its Job was created"
	deadlineMessage = "the run exceeded its activeDeadlineSeconds"
)

// outcome is what the Job and the Pods of an attempt prove.
type outcome struct {
	// step is the record of the attempt with what its Job shows.
	step v1alpha1.StepStatus
	// job of the attempt; nil if it does not exist.
	job *batchv1.Job
	// isMissing is true if the Job has never been created.
	isMissing bool
	// verdict on the attempt; zero if it has not ended, or if its outcome is not known yet.
	verdict verdict
	notes
}

// verdict is how an attempt at a step ended.
type verdict struct {
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

// newFailure returns the verdict of a failure that the Job does not report. The step's options cannot tolerate that the run exceeded
// its deadline.
func newFailure(f *facts, status *v1alpha1.SequentialJobStatus, step, reason, message string) verdict {
	v := verdict{phase: v1alpha1.StepFailed, reason: reason, message: message}
	if stepSpec := findStepSpec(f.spec, step); stepSpec != nil {
		hasExceeded := status.DeadlineExceededTime != nil || reason == v1alpha1.ReasonDeadlineExceeded
		v.tolerated = stepSpec.Options().OnFailure == v1alpha1.OnFailureContinue && (!hasExceeded || stepSpec.Options().Finally)
	}
	return v
}

// newOutcome returns the outcome of the active attempt at a step: whether its work is done, was interrupted or lost, or goes on. A Job
// that ended proves nothing by itself; Evidence does. isNew is true if this decision starts the attempt.
func newOutcome(f *facts, status *v1alpha1.SequentialJobStatus, step *v1alpha1.StepStatus, isNew bool) outcome {
	o := outcome{step: *step, notes: f.newNotes()}
	job, isKnown := findJob(&f.Observation, step, isNew)
	_, wasCreated := f.CreatedJobs[step.JobName]
	o.job = job
	switch {
	case !isKnown:
		o.question = &Question{JobNamed: step.JobName}
	case step.Reason == v1alpha1.ReasonContainerEnded && (job == nil || IsTerminal(job)):
		o.verdict = verdict{phase: v1alpha1.StepSucceeded, output: step.Output}
	case job != nil && IsTerminal(job):
		return o.ended(f, status)
	case job != nil:
		return o.unfinished(f)
	case isBeingReplaced(step):
		return o.replaced(f, status)
	case step.Phase == v1alpha1.StepSuspending:
		o.verdict = verdict{phase: v1alpha1.StepInterrupted, reason: v1alpha1.ReasonInterrupted}
	case step.Phase == v1alpha1.StepStopping:
		o.verdict = newFailure(f, status, step.Name, step.Reason, step.Message)
	case step.JobUID == "" && !wasCreated:
		o.isMissing = true
	default:
		o.verdict = lost(f, status, step.Name, v1alpha1.ReasonJobLost,
			fmt.Sprintf("Job %s was deleted before its outcome was recorded, by a client, or by a ttlSecondsAfterFinished that a policy of the cluster set", step.JobName))
	}
	return o
}

// lost returns the verdict on an attempt whose outcome nobody knows.
func lost(f *facts, status *v1alpha1.SequentialJobStatus, step, reason, message string) verdict {
	if f.spec.OnLostJob == v1alpha1.LostJobRerun {
		return verdict{phase: v1alpha1.StepLost, reason: reason}
	}
	return newFailure(f, status, step, reason, message)
}

// findJob returns the active step's Job; nil if it does not exist. If the cache does not show the Job, or shows another UID under its
// name, the cache may be stale, and the Job is not known unless this decision starts the attempt.
func findJob(o *Observation, step *v1alpha1.StepStatus, isNew bool) (job *batchv1.Job, isKnown bool) {
	uid := cmp.Or(step.JobUID, o.CreatedJobs[step.JobName])
	if job, read := o.Answers.JobsByName[step.JobName]; read {
		if job != nil && uid != "" && job.UID != uid {
			job = nil
		}
		return job, true
	}
	isNameObserved := false
	for _, job := range o.Jobs {
		if job.Name == step.JobName && job.UID == uid {
			return job, true
		}
		isNameObserved = isNameObserved || job.Name == step.JobName
	}
	return nil, isNew && uid == "" && !isNameObserved
}

// ended returns the outcome of an attempt whose Job has ended: what the Job's Pods prove, or else what is not known of them.
func (o outcome) ended(f *facts, status *v1alpha1.SequentialJobStatus) outcome {
	job, step := o.job, &o.step
	end, options, evidence := decision.FindEndCondition(job), jobOptions(job), evidenceOf(f, job)
	pods, listed := f.Answers.PodsByJob[job.UID]
	// A deadline may end a Pod in which only containers of others run.
	hasEndedBefore := end.Reason == batchv1.JobReasonDeadlineExceeded && hasOnePod(job) && evidence.success != nil
	hasFailed := end.Type == batchv1.JobFailed && !hasEndedBefore
	needsPods := options.Outputs && evidence.success == nil || hasFailed && job.Status.Failed > 0
	interruption, isUnknown := evidence.explain(job)
	switch {
	case interruption != "":
	case !listed && (isUnknown || needsPods):
		o.question = &Question{PodsOf: job}
		return o
	case isUnknown && !o.timer.HasReached(end.LastTransitionTime.Add(maxPodLag)):
		o.timer.RequeueWithin(evidenceRetry)
		return o
	}
	o.step = recorded(o.step, job)
	switch {
	case interruption != "":
		o.events = append(o.events, decision.WarningEvent(v1alpha1.EventStepInterrupted, actionRun, "A Pod of step "+step.Name+" "+interruption+"; the step runs again"))
		o.verdict = verdict{phase: v1alpha1.StepInterrupted, reason: v1alpha1.ReasonInterrupted}
		return o
	case isUnknown && end.Type == batchv1.JobComplete:
		o.verdict = lost(f, status, step.Name, v1alpha1.ReasonOutcomeUnknown,
			"Job "+job.Name+" is complete, but its Pods were deleted while no operator observed how they ended"+explainTTL(job))
		return o
	}
	step.FailedPods = job.Status.Failed
	message := failureMessage(pods)
	if end := evidence.failure; end != nil {
		step.ExitCode, message = &end.ExitCode, exitMessage(step.Name, end)
	}
	o.verdict = verdict{phase: v1alpha1.StepSucceeded, finishTime: end.LastTransitionTime}
	isTolerated := options.OnFailure == v1alpha1.OnFailureContinue
	switch {
	case hasFailed:
		o.verdict.phase, o.verdict.reason, o.verdict.tolerated = v1alpha1.StepFailed, end.Reason, isTolerated
		if end.Reason == batchv1.JobReasonDeadlineExceeded {
			o.verdict.reason = v1alpha1.ReasonStepDeadlineExceeded // DeadlineExceeded is the reason of a run's failure
		}
		o.verdict.message = cmp.Or(message, end.Message)
		if indexes := ptr.Deref(job.Status.FailedIndexes, ""); indexes != "" {
			o.verdict.message = "failed indexes " + indexes + ": " + o.verdict.message
		}
	case options.Outputs:
		output, problem := readOutput(job, cmp.Or(evidence.success, newestPod(pods, corev1.PodSucceeded)), step.Name)
		if o.verdict.output = output; problem != nil {
			o.verdict.phase, o.verdict.reason, o.verdict.message, o.verdict.tolerated = v1alpha1.StepFailed, problem.Reason, problem.Message, isTolerated
		}
	}
	return o
}

// unfinished returns the outcome of an attempt whose Job has not ended, with the failures of its Pods. The exit code is in the Pod. Pods
// of a step with several Pods are not listed, because many may fail.
func (o outcome) unfinished(f *facts) outcome {
	job := o.job
	if o.step.Phase != v1alpha1.StepRunning && o.step.Phase != v1alpha1.StepStarting {
		return o
	}
	if o.step.JobUID != "" || o.timer.HasReached(job.CreationTimestamp.Add(uidRecordDelay)) {
		o.step = recorded(o.step, job)
	}
	if job.Status.Failed <= o.step.FailedPods {
		return o
	}
	if _, listed := f.Answers.PodsByJob[job.UID]; !listed && hasOnePod(job) {
		o.question = &Question{PodsOf: job}
		return o
	}
	o.step = recorded(o.step, job)
	o.step.FailedPods = job.Status.Failed
	if evidence := evidenceOf(f, job); evidence.failure != nil {
		o.step.ExitCode = &evidence.failure.ExitCode
	}
	return o
}

// replaced returns the outcome of an attempt whose Job was deleted to replace it. If a container ran after all, it was interrupted; if
// nobody saw how the Pods ended, the Job is lost.
func (o outcome) replaced(f *facts, status *v1alpha1.SequentialJobStatus) outcome {
	step, evidence := &o.step, f.Evidence[o.step.JobUID]
	judgedAt := ptr.Deref(step.NextAttemptTime, f.now)
	switch {
	case !o.timer.HasReached(judgedAt.Time):
		return o
	case evidence.awaitsPods() && !o.timer.HasReached(judgedAt.Add(maxPodLag)):
		o.timer.RequeueWithin(evidenceRetry)
		return o
	}
	step.NextAttemptTime = nil
	switch {
	case evidence.hasRunPod():
		o.events = append(o.events, decision.WarningEvent(v1alpha1.EventStepInterrupted, actionRun,
			fmt.Sprintf("A container of step %s started while its Job was being replaced; the step runs again", step.Name)))
		o.verdict = verdict{phase: v1alpha1.StepInterrupted, reason: v1alpha1.ReasonInterrupted}
	case !evidence.awaitsPods() && evidence.provesNoRun(nil):
		o.events = append(o.events, decision.NormalEvent(v1alpha1.EventJobReplaced, actionRun,
			fmt.Sprintf("Job %s of step %s, of which no container had run, is replaced: the spec was corrected", step.JobName, step.Name)))
		o.verdict = verdict{phase: v1alpha1.StepInterrupted, reason: v1alpha1.ReasonReplaced}
	default:
		o.verdict = lost(f, status, step.Name, v1alpha1.ReasonJobLost, "Job "+step.JobName+" was deleted to replace it, and nobody saw whether its Pods ran meanwhile")
	}
	return o
}

// recorded returns the record of a step with its Job, when it started, and the spec that it was created from, which may not be the
// current spec if the decision that created the Job was not recorded.
func recorded(step v1alpha1.StepStatus, job *batchv1.Job) v1alpha1.StepStatus {
	step.JobUID = job.UID
	if specHash, found := job.Annotations[v1alpha1.AnnotationSpecHash]; found {
		step.SpecHash = specHash
	}
	started := ptr.Deref(job.Status.StartTime, job.CreationTimestamp)
	step.StartTime = started.DeepCopy()
	return step
}

// evidenceOf returns the evidence of a Job with the Pods of a live list, if there was one.
func evidenceOf(f *facts, job *batchv1.Job) Evidence {
	stored := f.Evidence[job.UID]
	evidence := stored.Clone()
	for i := range f.Answers.PodsByJob[job.UID] {
		evidence.Observe(&f.Answers.PodsByJob[job.UID][i])
	}
	return evidence
}
