package sequentialjob

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

const (
	// createdRecheck is the delay until a created Job is observed, so that a Job that was deleted before the cache
	// showed it is found to be lost within seconds.
	createdRecheck = time.Second
	// startReportDelay is the age of a Job, and of a running container, at which the step's phase is recorded, so that
	// a shorter step costs no further write.
	startReportDelay = time.Second
	// replacementDelay is the time between the deletion of a Job and the judgment of what its Pods have shown: the Pods' last events
	// arrive in another stream than the Job's.
	replacementDelay = 3 * time.Second
)

// next is what happens next with the active step.
type next struct {
	Actions
	// step is its record.
	step v1alpha1.StepStatus
	// verdict is why the step ends without a Job; zero if it does not.
	verdict verdict
	// blocked is why the step does not start or continue; nil if it does.
	blocked *decision.Problem
	// exceedsDeadline is true if the step ends because the run exceeded its deadline.
	exceedsDeadline bool
	// specChanged is true if the spec changes the step although a container of it may have run.
	specChanged bool
	// workspace is the claim that the run uses from now on; nil if that does not change. If losesWorkspace, all steps run again.
	workspace      *v1alpha1.ClaimStatus
	losesWorkspace bool
	notes
}

// continueStep decides what happens with a step whose Job has not ended: it is stopped, replaced, suspended, resumed, or only observed.
func continueStep(f *facts, status *v1alpha1.SequentialJobStatus, o *outcome) next {
	n, job := next{step: o.step, notes: f.newNotes()}, o.job
	step := &n.step
	if !job.DeletionTimestamp.IsZero() {
		return n // the Job exists until its Pods have stopped
	}
	replaces, question := mustReplace(f, status, step, job)
	if isBeingReplaced(step) {
		if question != nil || replaces {
			n.question = question
			return n.replace(f, job)
		}
		// The spec was changed back before the Job was deleted, for example.
		step.Phase, step.Reason, step.Message, step.NextAttemptTime = v1alpha1.StepStarting, "", "", nil
	}
	if step.Phase == v1alpha1.StepStopping || step.Phase == v1alpha1.StepSuspending {
		n.DeleteJobs = []*batchv1.Job{job}
		return n
	}
	left, endsWithStep := findLeftover(podsOf(f, job), job), f.spec.Template != nil && f.spec.Template.EndWithStep
	problem, others := stopProblem(f, status, step, job)
	n.notes, n.exceedsDeadline = n.and(others), problem != nil && problem.Reason == v1alpha1.ReasonDeadlineExceeded
	switch {
	case left != nil && hasOnePod(job) && (problem != nil || endsWithStep && left.isDue(&n.timer)):
		output, result := left.result(job, step.Name)
		step.Output, step.ExitCode = output, &left.end.ExitCode
		return n.stop(job, v1alpha1.StepStopping, result)
	case problem != nil:
		return n.stop(job, v1alpha1.StepStopping, problem)
	case n.question != nil:
		return n
	case question != nil || replaces:
		n.question = question
		return n.replace(f, job)
	}
	stepSpec := findStepSpec(f.spec, step.Name)
	n.specChanged = stepSpec != nil && !isSpecRejected(status) && hasStepChanged(step, nil, stepSpec)
	isSuspendedByUs := isSuspended(job) && job.Annotations[v1alpha1.AnnotationSuspended] != "" && !isQueueManaged(job)
	switch {
	case f.spec.Suspend && f.spec.SuspendPolicy == v1alpha1.SuspendImmediate:
		return n.suspend(job)
	case !f.spec.Suspend && isSuspendedByUs:
		return n.resume(f, status, job)
	case !f.spec.Suspend && isSuspendedBySpec(step):
		step.Phase = v1alpha1.StepStarting
	}
	return n.observeStart(f, job, left)
}

// stop deletes the step's Job. The step remains active until the Job no longer exists.
func (n next) stop(job *batchv1.Job, phase v1alpha1.StepPhase, problem *decision.Problem) next {
	n.step = recorded(n.step, job)
	n.step.Phase, n.step.Reason, n.step.Message = phase, problem.Reason, decision.TruncateMessage(problem.Message, maxMessageBytes)
	n.DeleteJobs = []*batchv1.Job{job}
	return n
}

// replace deletes the step's Job, so that a Job with the corrected content can follow.
func (n next) replace(f *facts, job *batchv1.Job) next {
	n = n.stop(job, v1alpha1.StepStopping, &decision.Problem{
		Reason: v1alpha1.ReasonReplaced, Message: "the spec was corrected before a container ran; Job " + job.Name + " is replaced",
	})
	n.step.NextAttemptTime = new(metav1.NewTime(f.now.Add(replacementDelay)))
	return n
}

// suspend suspends the step's Job.
func (n next) suspend(job *batchv1.Job) next {
	switch {
	case isQueueManaged(job):
		// The queue would resume a Job that the operator suspends, but cannot resume a deleted Job.
		return n.stop(job, v1alpha1.StepSuspending, &decision.Problem{
			Reason: v1alpha1.ReasonInterrupted, Message: "suspended; a new Job is created when the run is resumed",
		})
	case !isSuspended(job):
		n.SuspendJob = job
		if isSuspendedBySpec(&n.step) { // another client resumed it
			n.step = recorded(n.step, job)
			n.step.Phase = v1alpha1.StepStarting
		}
	case hasStoppedPods(job):
		n.step = recorded(n.step, job)
		n.step.Phase, n.step.Reason, n.step.Message = v1alpha1.StepSuspended, "", ""
	}
	return n
}

// resume resumes a Job that this operator suspended. A Job whose workspace was lost meanwhile is deleted instead, and
// the next attempt fails or restarts the run before its Job is created.
func (n next) resume(f *facts, status *v1alpha1.SequentialJobStatus, job *batchv1.Job) next {
	if f.spec.Workspace != nil {
		claim, read := f.Answers.Claims[WorkspaceName(f.SequentialJob)]
		if !read {
			n.question = &Question{Claim: WorkspaceName(f.SequentialJob)}
			return n
		}
		if loss := workspaceLoss(f.SequentialJob, status.Workspace.UID, claim); loss != "" {
			return n.stop(job, v1alpha1.StepSuspending, &decision.Problem{Reason: v1alpha1.ReasonWorkspaceLost, Message: loss})
		}
	}
	if isSuspendedBySpec(&n.step) {
		n.step.Phase = v1alpha1.StepStarting
	}
	n.ResumeJob = job
	return n
}

// observeStart records whether the Pods of an unfinished Job run, and the problem if they do not. left is a Pod that only containers of
// others keep from ending; nil for none.
func (n next) observeStart(f *facts, job *batchv1.Job, left *leftover) next {
	if !n.timer.HasReached(job.CreationTimestamp.Add(startReportDelay)) {
		return n
	}
	pods := withoutDeleted(podsOf(f, job))
	if n.step.Reason == v1alpha1.ReasonCrashLoop { // which is reported until a Pod runs for good, not again at each failure
		pods = slices.DeleteFunc(pods, func(pod *corev1.Pod) bool { return isUnstable(pod, &n.timer) })
	}
	switch since := runningSince(pods); {
	case isSuspended(job) && job.Annotations[v1alpha1.AnnotationSuspended] != "": // this operator resumes it
	case isSuspended(job):
		phase, problem := suspensionProblem(job)
		n = n.report(phase, problem)
		n.step = recorded(n.step, job)
	case left != nil && left.isDue(&n.timer):
		n.step = recorded(n.step, job)
		n = n.report(v1alpha1.StepRunning, left.problem(n.step.Name))
	case since != nil:
		isReported := n.step.Phase == v1alpha1.StepRunning && n.step.Reason != v1alpha1.ReasonContainerStillRuns
		if n.timer.HasReached(since.Add(startReportDelay)) && !isReported {
			n.step = recorded(n.step, job)
			n = n.report(v1alpha1.StepRunning, nil)
		}
	default:
		problem, notes := findStartProblem(f, &n.step.Explanation, job)
		n.notes = n.and(notes)
		if n.question == nil && (problem != nil || n.step.Phase != v1alpha1.StepRunning) { // else the Pod may have ended a moment ago
			n = n.report(v1alpha1.StepStarting, problem)
		}
	}
	return n
}

// report records the phase of the step, and the problem that keeps its Pods from running; nil for none.
func (n next) report(phase v1alpha1.StepPhase, problem *startProblem) next {
	n.step.Phase = phase
	switch {
	case problem != nil:
		n.step.Explanation = problem.explanation(&n.step.Explanation)
		n.blocked = &decision.Problem{Reason: n.step.Reason, Message: fmt.Sprintf("step %q: %s; %s", n.step.Name, n.step.Message, problem.advice)}
	case n.step.Message != "": // a reason without a message is why there is another attempt
		n.step.Reason, n.step.Message = "", ""
	}
	return n
}

// stopProblem returns why the step's Job must be deleted and the step fails: the run exceeded its deadline, or the step's container did
// not start in time; nil if the step continues.
func stopProblem(f *facts, status *v1alpha1.SequentialJobStatus, step *v1alpha1.StepStatus, job *batchv1.Job) (*decision.Problem, notes) {
	n, options := f.newNotes(), jobOptions(job)
	if !options.Finally && !isSuspendedBySpec(step) && exceedsDeadline(f, status) {
		return &decision.Problem{Reason: v1alpha1.ReasonDeadlineExceeded, Message: deadlineMessage}, n
	}
	limit := options.StartDeadlineSeconds
	if limit == nil || job.Status.StartTime == nil || hasStartedPod(job) ||
		!n.timer.HasReached(job.Status.StartTime.Add(time.Duration(*limit)*time.Second)) {
		return nil, n
	}
	pods, known := f.Answers.PodsByJob[job.UID]
	switch {
	case slices.ContainsFunc(podsOf(f, job), func(pod *corev1.Pod) bool { return hasStarted(pod, step.Name) }):
		return nil, n
	case !known:
		n.question = &Question{PodsOf: job}
		return nil, n
	case slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return hasStarted(&pod, step.Name) }):
		return nil, n
	}
	cause := waitingMessage(pods)
	if cause == "" && step.Phase == v1alpha1.StepStarting {
		cause = step.Message // only events name some causes, such as a quota
	}
	message := decision.FormatReason(fmt.Sprintf("container %s did not start within %d s", step.Name, *limit), cause)
	return &decision.Problem{Reason: v1alpha1.ReasonStartDeadlineExceeded, Message: message}, n
}

// mustReplace reports whether the Job of a waiting step is replaced: the spec has corrected the step, and none of the Job's containers
// has run.
func mustReplace(f *facts, status *v1alpha1.SequentialJobStatus, step *v1alpha1.StepStatus, job *batchv1.Job) (bool, *Question) {
	stepSpec := findStepSpec(f.spec, step.Name)
	if stepSpec == nil || !isCorrectable(step) || isSpecInvalid(status) {
		return false, nil
	}
	wanted, created := stepJob(f.with(status), stepSpec, step.Run, step.Attempt), job.Annotations[v1alpha1.AnnotationContentHash]
	if created == "" || created == wanted.Annotations[v1alpha1.AnnotationContentHash] ||
		job.Annotations[v1alpha1.AnnotationGeneration] == wanted.Annotations[v1alpha1.AnnotationGeneration] {
		return false, nil // the Job is from the same spec, or from a spec that says the same about the Job
	}
	if _, listed := f.Answers.PodsByJob[job.UID]; !listed {
		return false, &Question{PodsOf: job}
	}
	evidence, started := evidenceOf(f, job), job.Status.StartTime
	wasSuspended := slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool { return c.Type == batchv1.JobSuspended })
	if wasSuspended || !hasOnePod(job) { // Jobs do not count the Pods that a suspension ended
		started = nil
	}
	return job.Status.Failed == 0 && !hasStartedPod(job) && !hasOtherController(job) && evidence.provesNoRun(started), nil
}

// createJob creates the Job of a started step, unless the step ends without a Job.
func createJob(f *facts, status *v1alpha1.SequentialJobStatus, o *outcome, isNew bool) next {
	n, refusal := next{step: o.step, notes: f.newNotes()}, f.Refusal
	step, stepSpec := &n.step, findStepSpec(f.spec, o.step.Name)
	if refusal != nil && refusal.Step != "" && refusal.Step != step.Name {
		refusal = nil // of another step's object
	}
	reject := func(reason, message string) next {
		n.verdict = newFailure(f, status, step.Name, reason, message)
		return n
	}
	if stepSpec == nil {
		return reject(v1alpha1.ReasonJobRejected, removedMessage)
	}
	_, err := overlaidTemplate(f.SequentialJob, stepSpec)
	switch {
	case f.spec.Suspend, !isApproved(f, status, step, stepSpec):
		n.verdict = verdict{phase: v1alpha1.StepPending}
		return n
	case err != nil:
		return reject(v1alpha1.ReasonJobRejected, "podTemplate: "+err.Error())
	case refusal != nil && !canRetry(refusal):
		return reject(v1alpha1.ReasonJobRejected, refusal.Message)
	case !stepSpec.Options().Finally && !isNew && exceedsDeadline(f, status):
		n.exceedsDeadline = true
		return reject(v1alpha1.ReasonDeadlineExceeded, deadlineMessage)
	}
	job := stepJob(f.with(status), stepSpec, step.Run, step.Attempt)
	if problem := forbiddenImage(f, job); problem != nil {
		return n.block(problem)
	}
	if f.spec.Workspace != nil {
		var canUse bool
		if n, canUse = n.useWorkspace(f, status, refusal); !canUse {
			return n
		}
	}
	n.Outputs, n.CreateJob = outputsConfigMap(f.SequentialJob, status), job
	n.step.SpecHash = stepHash(stepSpec)
	if !isNew && !f.HasStored { // the write fences a process that was paused, and knows an earlier Job of the attempt
		n.step.StartTime = f.now.DeepCopy()
	}
	if refusal != nil {
		return n.block(refusalProblem(f, refusal))
	}
	n.step.Phase = v1alpha1.StepStarting
	n.timer.RequeueWithin(createdRecheck)
	return n
}

// canRetry reports whether the unchanged object may be accepted later: once a quota has room, its name is free, or, for
// a Pod, the namespace allows it.
func canRetry(refusal *decision.Refusal) bool {
	return refusal.Class == decision.QuotaExceeded || refusal.Class == decision.AlreadyExists ||
		refusal.Kind == podKind && refusal.Class != decision.Invalid
}

// block records why the step's Job cannot be created.
func (n next) block(problem *decision.Problem) next {
	n.blocked = problem
	n.step.Phase, n.step.Reason, n.step.Message = v1alpha1.StepStarting, problem.Reason, decision.TruncateMessage(problem.Message, maxMessageBytes)
	return n
}

// useWorkspace reports whether a Job of the step can be created now. If not, the workspace is created first, or the
// step waits for it, or the workspace is lost. A Job is created only if the claim's UID is recorded and the
// claim is not being deleted.
func (n next) useWorkspace(f *facts, status *v1alpha1.SequentialJobStatus, refusal *decision.Refusal) (next, bool) {
	name, recordedUID := WorkspaceName(f.SequentialJob), status.Workspace.UID
	claim, read := f.Answers.Claims[name]
	if !read {
		n.question = &Question{Claim: name}
		return n, false
	}
	loss := workspaceLoss(f.SequentialJob, recordedUID, claim)
	// A Job of an earlier attempt or of another step used the workspace, perhaps in an earlier run whose outcomes are
	// kept.
	isUsed := n.step.Attempt > 1 || findStepWhere(status.Steps, func(other *v1alpha1.StepStatus) bool {
		return other.Name != n.step.Name && other.JobUID != ""
	}) != nil
	recreates := f.spec.Workspace.OnLost == v1alpha1.LostWorkspaceRecreate
	lossEvent := func(consequence string) {
		n.events = append(n.events, decision.WarningEvent(v1alpha1.EventWorkspaceLost, actionRun, loss+consequence))
	}
	switch {
	case loss != "" && isUsed && (!recreates || IsFinally(f.spec, n.step.Name)):
		n.verdict = verdict{
			phase: v1alpha1.StepFailed, reason: v1alpha1.ReasonWorkspaceLost,
			message: loss + "; rerun from Start to run all steps with an empty workspace",
		}
		return n, false
	case loss != "" && isUsed:
		n.losesWorkspace = true
		lossEvent("; all steps run again with an empty workspace")
		n.timer.RequeueWithin(time.Millisecond) // the next decision admits the run
		return n, false
	case claim != nil && !decision.WasCreatedFor(f.SequentialJob, claim, v1alpha1.LabelSequentialJobUID) && claim.UID != recordedUID:
		taken := decision.NameTaken(decision.Refusal{Kind: "PersistentVolumeClaim", Name: name}, "SequentialJob")
		return n.block(refusalProblem(f, taken)), false
	case claim != nil && !claim.DeletionTimestamp.IsZero():
		// It exists as long as any Pod that uses it, even if the Pod has ended. If the spec allows a restart, the Jobs of earlier runs
		// are deleted, with their Pods.
		for _, job := range f.Jobs {
			if run, known := runOf(job); recreates && (!known || run != n.step.Run) && !keepsForArchive(f, status.Archive, job) {
				n.DeleteJobs = append(n.DeleteJobs, job)
			}
		}
		return n.report(v1alpha1.StepStarting, &startProblem{decision.Problem{
			Reason:  v1alpha1.ReasonWorkspaceTerminating,
			Message: fmt.Sprintf("PersistentVolumeClaim %s is being deleted, and exists as long as a Pod that uses it", name),
		}, "delete these Pods, including finished ones"}), false
	}
	// A rerun from the first step starts with an empty workspace if the previous run's was lost.
	if n.workspace = new(v1alpha1.ClaimStatus{}); recordedUID != "" && loss != "" {
		lossEvent("; the run starts with another workspace, because no step of it has run")
	}
	switch {
	case claim != nil:
		*n.workspace = v1alpha1.ClaimStatus{ClaimRef: v1alpha1.LocalReference{Name: name}, UID: claim.UID}
		return n, true
	case refusal != nil:
		n = n.block(refusalProblem(f, refusal))
	default:
		n.timer.RequeueWithin(time.Millisecond) // the next decision records the claim's UID
	}
	n.Workspace = workspaceClaim(f.SequentialJob)
	return n, false
}

// workspaceLoss returns why the workspace of earlier steps is lost; empty if it is not. An older operator did not
// record the UID of the claim.
func workspaceLoss(sj *v1alpha1.SequentialJob, recorded types.UID, claim *metav1.PartialObjectMetadata) string {
	loss := ""
	switch {
	case claim == nil:
		loss = "no longer exists"
	case recorded != "" && claim.UID != recorded,
		recorded == "" && !decision.WasCreatedFor(sj, claim, v1alpha1.LabelSequentialJobUID):
		loss = "was replaced by another one"
	case !claim.DeletionTimestamp.IsZero():
		loss = "is being deleted"
	default:
		return ""
	}
	return fmt.Sprintf("PersistentVolumeClaim %s with the workspace %s", WorkspaceName(sj), loss)
}

// workspaceClaim returns the claim for spec.workspace, or nil.
//
// A retained claim has no owner reference, so that the garbage collector keeps it; a label
// identifies its SequentialJob.
func workspaceClaim(sj *v1alpha1.SequentialJob) *corev1.PersistentVolumeClaim {
	workspace := sj.Spec.Workspace
	if workspace == nil {
		return nil
	}
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name:      WorkspaceName(sj),
			Namespace: sj.Namespace,
			Labels:    childLabels(sj),
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{workspace.AccessMode},
			StorageClassName: workspace.StorageClassName,
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: ptr.Deref(workspace.Size, resource.Quantity{})},
			},
		},
	}
	if workspace.Retention != v1alpha1.WorkspaceRetain {
		claim.OwnerReferences = decision.ControllerReferences("SequentialJob", sj)
	}
	return claim
}

// isCorrectable reports whether the spec may change an active step, because it waits, or because its Job is being replaced. The operator
// replaces a Job only if no container of it has run.
func isCorrectable(step *v1alpha1.StepStatus) bool {
	return isBeingReplaced(step) || (step.Phase == v1alpha1.StepStarting || step.Phase == v1alpha1.StepQueued) && step.FailedPods == 0 && slices.Contains(notStartedReasons, step.Reason)
}

// notStartedReasons are the reasons of a step that waits, and whose Pods may not have run a container.
var notStartedReasons = []string{
	v1alpha1.ReasonImagePull, v1alpha1.ReasonConfigError, v1alpha1.ReasonPodNotCreated, v1alpha1.ReasonQueued,
	corev1.PodReasonUnschedulable, corev1.PodReasonSchedulingGated,
	v1alpha1.ReasonQuotaExceeded, v1alpha1.ReasonNameTaken, v1alpha1.ReasonImageNotAllowed, v1alpha1.ReasonWorkspaceTerminating,
}

func isBeingReplaced(step *v1alpha1.StepStatus) bool {
	return step.Phase == v1alpha1.StepStopping && step.Reason == v1alpha1.ReasonReplaced
}

// runDeadline returns the time at which the run exceeds its activeDeadlineSeconds.
func runDeadline(spec *v1alpha1.SequentialJobSpec, status *v1alpha1.SequentialJobStatus) (deadline time.Time, found bool) {
	if spec.ActiveDeadlineSeconds == nil || status.StartTime == nil {
		return time.Time{}, false
	}
	return status.StartTime.Add(time.Duration(*spec.ActiveDeadlineSeconds) * time.Second), true
}

func exceedsDeadline(f *facts, status *v1alpha1.SequentialJobStatus) bool {
	deadline, found := runDeadline(f.spec, status)
	return found && !f.Now.Before(deadline)
}

// retried returns the verdict Retrying instead of the verdict of a failed attempt, if the step has another attempt left, and the run's
// deadline and the duration of the retries allow it.
func retried(f *facts, status *v1alpha1.SequentialJobStatus, step *v1alpha1.StepStatus, v verdict) verdict {
	stepSpec := findStepSpec(f.spec, step.Name)
	if v.phase != v1alpha1.StepFailed || !retriedReasons[v.reason] || stepSpec == nil {
		return v
	}
	retry := stepSpec.Options().Retry
	if retry == nil || step.FailedAttempts >= ptr.Deref(retry.Limit, 0) {
		return v
	}
	at := metav1.NewTime(f.now.Add(decision.RetryBackoff(&retry.Retry, step.FailedAttempts)))
	if deadline, found := runDeadline(f.spec, status); found && !stepSpec.Options().Finally && !at.Time.Before(deadline) {
		return v
	}
	if retry.MaxDuration != nil {
		if v.firstStart = cmp.Or(step.FirstStartTime, step.StartTime); v.firstStart != nil && at.Sub(v.firstStart.Time) > retry.MaxDuration.Duration.Duration {
			return v
		}
	}
	v.phase, v.tolerated, v.nextAttempt = v1alpha1.StepRetrying, false, &at
	return v
}

// retriedReasons are the failures of a Job after which another Job may succeed. After other failures, another Job would
// fail too, or a podFailurePolicy forbids it.
var retriedReasons = map[string]bool{
	batchv1.JobReasonBackoffLimitExceeded:     true,
	batchv1.JobReasonFailedIndexes:            true,
	batchv1.JobReasonMaxFailedIndexesExceeded: true,
	v1alpha1.ReasonStepDeadlineExceeded:       true,
	v1alpha1.ReasonStartDeadlineExceeded:      true,
}
