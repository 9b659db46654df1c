package sequence

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// runningDelay is how old a Job must be before its step is recorded as Running. A step
// that ends before is recorded once, with its outcome, which saves a write for each
// short step. See docs/decisions on deferred progress.
const runningDelay = 15 * time.Second

const removedMessage = "the step was removed from the spec before its Job was made"

// settle sees how the active step stands. It reports whether the step is no longer
// active; if not, it has planned what to do about it, or asked.
func (d *decision) settle(step *v1alpha1.StepStatus) bool {
	job, known := d.jobOf(step)
	switch {
	case !known:
		return false
	case job == nil:
		return d.settleAbsent(step)
	case isTerminal(job):
		return d.settleTerminal(step, job)
	}
	d.observeRunning(step, job)
	if !job.DeletionTimestamp.IsZero() {
		return false // its Pods are on their way out; the Job goes when they have
	}
	switch {
	case step.Phase == v1alpha1.StepStopping:
		d.delete(job)
	case d.overdue(step, job):
	case d.sj.Spec.Suspend:
		d.suspend(step, job)
	default:
		d.resume(step, job)
	}
	return false
}

// jobOf is the active step's Job, nil when it is known not to exist. Without knowing,
// it asks: a cache that does not show the Job, or shows one of its name that neither the
// status nor this process knows, may only be behind.
func (d *decision) jobOf(step *v1alpha1.StepStatus) (job *batchv1.Job, known bool) {
	uid := step.JobUID
	if uid == "" {
		uid = d.in.Created[step.JobName]
	}
	if job, read := d.in.Answers.Read[step.JobName]; read {
		if job == nil || (uid != "" && job.UID != uid) {
			return nil, true
		}
		return job, true
	}
	is := func(job *batchv1.Job) bool { return job.Name == step.JobName && job.UID == uid }
	if at := slices.IndexFunc(d.in.Jobs, is); at >= 0 {
		return d.in.Jobs[at], true
	}
	if d.begun == step.Name && uid == "" && !d.isShown(step.JobName) {
		return nil, true
	}
	d.plan.Ask = &Question{JobNamed: step.JobName}
	return nil, false
}

func (d *decision) isShown(name string) bool {
	return slices.ContainsFunc(d.in.Jobs, func(job *batchv1.Job) bool { return job.Name == name })
}

// settleAbsent deals with a step whose Job does not exist.
func (d *decision) settleAbsent(step *v1alpha1.StepStatus) bool {
	_, created := d.in.Created[step.JobName]
	switch {
	case step.Phase == v1alpha1.StepStopping && step.Reason == v1alpha1.ReasonInterrupted:
		step.Phase = v1alpha1.StepPending
		return true
	case step.Phase == v1alpha1.StepStopping:
		d.fail(step, step.Reason, step.Message)
		return true
	case step.Phase == v1alpha1.StepStarting && !created:
		return d.make(step)
	case d.sj.Spec.OnLostJob == v1alpha1.LostJobRerun:
		step.Phase, step.Reason = v1alpha1.StepPending, v1alpha1.ReasonJobLost
		return true
	default:
		d.fail(step, v1alpha1.ReasonJobLost, fmt.Sprintf("Job %s vanished before its outcome was recorded", step.JobName))
		return true
	}
}

// make plans the Job of a step that is starting, unless something bars it. It reports
// whether the step is over before it began.
func (d *decision) make(step *v1alpha1.StepStatus) bool {
	spec := findSpecStep(&d.sj.Spec, step.Name)
	refusal := d.refusalOf(step)
	switch {
	case spec == nil:
		d.fail(step, v1alpha1.ReasonJobRejected, removedMessage)
		return true
	case d.sj.Spec.Suspend:
		step.Phase, step.Reason = v1alpha1.StepPending, ""
		return true
	case refusal != nil && refusal.Kind == RefusedInvalid:
		d.fail(step, v1alpha1.ReasonJobRejected, refusal.Message)
		return true
	case !step.Finally && d.begun != step.Name && d.deadlineLeft() < 0:
		d.fail(step, v1alpha1.ReasonDeadlineExceeded, "the run exceeded its activeDeadlineSeconds")
		return true
	}
	d.blocked = refusal
	if d.blocked == nil {
		d.requeueAfter(runningDelay) // to see it running
	}
	d.plan.Workspace = workspaceClaim(d.sj)
	d.plan.Outputs = outputsConfigMap(d.sj, &d.status)
	d.plan.Create = stepJob(d.sj, spec, step.Run, step.Attempt)
	return false
}

// refusalOf is what was refused of the step, or of what all steps need.
func (d *decision) refusalOf(step *v1alpha1.StepStatus) *Refusal {
	if refusal := d.in.Refusal; refusal != nil && (refusal.Step == "" || refusal.Step == step.Name) {
		return refusal
	}
	return nil
}

// settleTerminal records the outcome of a Job that is over.
func (d *decision) settleTerminal(step *v1alpha1.StepStatus, job *batchv1.Job) bool {
	options := optionsOf(job)
	outcome := terminalCondition(job)
	failed := outcome.Type == batchv1.JobFailed
	pods, seen := d.in.Answers.Pods[job.UID]
	if !seen && (options.Outputs || (failed && job.Status.Failed > 0)) {
		d.plan.Ask = &Question{PodsOf: job}
		return false
	}
	d.adopt(step, job)
	if failed {
		message := failureMessage(pods, step.Name)
		if message == "" {
			message = outcome.Message
		}
		step.Tolerated = options.OnFailure == v1alpha1.OnFailureContinue
		d.end(step, v1alpha1.StepFailed, outcome.Reason, message)
	} else {
		if options.Outputs {
			step.Output = terminationMessage(pods, step.Name)
		}
		d.end(step, v1alpha1.StepSucceeded, "", "")
	}
	step.FinishTime = outcome.LastTransitionTime.DeepCopy()
	return true
}

// fail ends a step whose Job does not tell why.
func (d *decision) fail(step *v1alpha1.StepStatus, reason, message string) {
	if spec := findSpecStep(&d.sj.Spec, step.Name); spec != nil {
		step.Tolerated = spec.Options().OnFailure == v1alpha1.OnFailureContinue && reason != v1alpha1.ReasonDeadlineExceeded
	}
	d.end(step, v1alpha1.StepFailed, reason, message)
}

func (d *decision) end(step *v1alpha1.StepStatus, phase v1alpha1.StepPhase, reason, message string) {
	step.Phase, step.Reason, step.Message = phase, reason, shorten(message)
	step.FinishTime = d.now.DeepCopy()
}

// adopt records which Job the step has, since when, and which spec it was made from: not
// always today's, when the pass that made it could not record so.
func (d *decision) adopt(step *v1alpha1.StepStatus, job *batchv1.Job) {
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
	if d.sj.Status.StartTime == nil && started.Before(d.status.StartTime) {
		d.status.StartTime = started.DeepCopy() // the run began in a pass that recorded nothing
	}
}

// observeRunning records a Job that is not over.
func (d *decision) observeRunning(step *v1alpha1.StepStatus, job *batchv1.Job) {
	switch step.Phase {
	case v1alpha1.StepStarting:
		if age := d.in.Now.Sub(job.CreationTimestamp.Time); age < runningDelay {
			d.requeueAfter(runningDelay - age)
			return
		}
		step.Phase = v1alpha1.StepRunning
		d.adopt(step, job)
	case v1alpha1.StepRunning:
		d.adopt(step, job)
	}
}

// overdue stops a step that exceeded the run's deadline or its own to start.
func (d *decision) overdue(step *v1alpha1.StepStatus, job *batchv1.Job) bool {
	if !step.Finally && step.Phase != v1alpha1.StepSuspended && d.deadlineLeft() < 0 {
		d.stop(step, job, v1alpha1.ReasonDeadlineExceeded, "the run exceeded its activeDeadlineSeconds")
		return true
	}
	limit := optionsOf(job).StartDeadlineSeconds
	if limit == nil || job.Status.StartTime == nil || podsHaveStarted(job) {
		return false
	}
	left := job.Status.StartTime.Add(time.Duration(*limit) * time.Second).Sub(d.in.Now)
	if left > 0 {
		d.requeueAfter(left)
		return false
	}
	pods, seen := d.in.Answers.Pods[job.UID]
	if !seen {
		d.plan.Ask = &Question{PodsOf: job}
		return true
	}
	if anyContainerStarted(pods) {
		return false
	}
	message := fmt.Sprintf("no Pod started within %d s", *limit)
	if why := waitingMessage(pods); why != "" {
		message += ": " + why
	}
	d.stop(step, job, v1alpha1.ReasonStartDeadlineExceeded, message)
	return true
}

// stop ends the step's Job. The step is over when the Job is gone.
func (d *decision) stop(step *v1alpha1.StepStatus, job *batchv1.Job, reason, message string) {
	d.adopt(step, job)
	step.Phase, step.Reason, step.Message = v1alpha1.StepStopping, reason, shorten(message)
	d.delete(job)
}

// suspend holds a running Job, if spec.suspendPolicy says so.
func (d *decision) suspend(step *v1alpha1.StepStatus, job *batchv1.Job) {
	switch {
	case d.sj.Spec.SuspendPolicy != v1alpha1.SuspendImmediate:
	case queueManaged(job):
		// The queue would resume a Job that we suspend. Without the Job it cannot.
		d.stop(step, job, v1alpha1.ReasonInterrupted, "suspended; a new Job is made on resumption")
	case !isSuspended(job):
		d.plan.Suspend = job
		if step.Phase == v1alpha1.StepSuspended { // somebody else resumed it
			step.Phase = v1alpha1.StepRunning
			d.adopt(step, job)
		}
	case isIdle(job):
		d.adopt(step, job)
		step.Phase = v1alpha1.StepSuspended
	}
}

// resume lets a Job go on that this operator suspended. Whatever others suspended is
// theirs to resume.
func (d *decision) resume(step *v1alpha1.StepStatus, job *batchv1.Job) {
	if step.Phase == v1alpha1.StepSuspended {
		step.Phase = v1alpha1.StepRunning
	}
	if isSuspended(job) && job.Annotations[v1alpha1.AnnotationSuspended] != "" && !queueManaged(job) {
		d.plan.Resume = job
	}
}

// isIdle reports whether a suspended Job has no Pods left.
func isIdle(job *batchv1.Job) bool {
	return jobHasCondition(job, batchv1.JobSuspended) && job.Status.Active == 0 &&
		(job.Status.Terminating == nil || *job.Status.Terminating == 0)
}

// isTerminal reports whether the Job is over. SuccessCriteriaMet and FailureTarget only
// announce that: Pods may still be running under them.
func isTerminal(job *batchv1.Job) bool { return terminalCondition(job) != nil }

// IsTerminal reports whether the Job is over, with all its Pods gone or finished.
func IsTerminal(job *batchv1.Job) bool { return isTerminal(job) }

func terminalCondition(job *batchv1.Job) *batchv1.JobCondition {
	for i := range job.Status.Conditions {
		c := &job.Status.Conditions[i]
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

func jobHasCondition(job *batchv1.Job, wanted batchv1.JobConditionType) bool {
	for _, c := range job.Status.Conditions {
		if c.Type == wanted && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

// Noteworthy reports whether a change of a Job can matter to its sequence. Most of what
// a Job reports while it runs does not.
func Noteworthy(before, after *batchv1.Job) bool {
	switch {
	case isTerminal(after) != isTerminal(before),
		after.DeletionTimestamp.IsZero() != before.DeletionTimestamp.IsZero(),
		isSuspended(after) != isSuspended(before),
		isIdle(after) != isIdle(before):
		return true
	default: // a start deadline counts from the Job's start
		return optionsOf(after).StartDeadlineSeconds != nil && !after.Status.StartTime.Equal(before.Status.StartTime)
	}
}

func isSuspended(job *batchv1.Job) bool { return job.Spec.Suspend != nil && *job.Spec.Suspend }
