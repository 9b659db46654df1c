package sequentialjob

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
	// maxClockLag is how far the clock of a node may be behind that of the API server without a sign of it.
	maxClockLag = 10 * time.Second
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
	// firstStart is when its first attempt started; nil if the duration of the retries has no limit.
	firstStart *metav1.Time
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

// newOutcome returns the outcome of the active attempt at a step: whether its work is done, was interrupted or lost, or continues. A Job
// that ended proves nothing by itself; Evidence does. isNew is true if this decision starts the attempt.
func newOutcome(f *facts, status *v1alpha1.SequentialJobStatus, step *v1alpha1.StepStatus, isNew bool) outcome {
	o := outcome{step: *step, notes: f.newNotes()}
	job, isKnown := findJob(&f.Observation, step, isNew)
	_, wasCreated := f.CreatedJobs[step.JobName]
	o.job = job
	switch {
	case !isKnown:
		o.question = &Question{JobNamed: step.JobName}
	case job == nil && o.awaitsPods(f):
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
	case hasMissedStart(step) && !f.Evidence[step.JobUID].Watched:
		o.verdict = lost(f, status, step.Name, v1alpha1.ReasonJobLost,
			"Job "+step.JobName+" was deleted because it did not start in time, and nobody saw whether it had ended before")
	case step.Phase == v1alpha1.StepStopping:
		o.verdict = newFailure(f, status, step.Name, step.Reason, step.Message)
	case !isNew && !f.Answers.HasAllJobs: // a later Job, which the cache does not show yet, would prove that the step succeeded
		o.question = &Question{AllJobs: true}
	case step.JobUID == "" && !wasCreated:
		o.isMissing = true
	default:
		o.verdict = lost(f, status, step.Name, v1alpha1.ReasonJobLost,
			fmt.Sprintf("Job %s was deleted before its outcome was recorded, by a client, or by a ttlSecondsAfterFinished that a policy of the cluster set", step.JobName))
	}
	return o
}

// awaitsPods reports whether the attempt has no outcome yet because Pods of its Job, which was deleted, may still run: no other step runs
// beside them. Clients delete Jobs before their Pods, and some leave the Pods behind.
func (o *outcome) awaitsPods(f *facts) bool {
	job := &batchv1.Job{}
	job.Namespace, job.Name, job.UID = f.SequentialJob.Namespace, o.step.JobName, cmp.Or(o.step.JobUID, f.CreatedJobs[o.step.JobName])
	pods, listed := f.Answers.PodsByJob[job.UID]
	switch {
	case job.UID == "":
		return false
	case !listed:
		o.question = &Question{PodsOf: job}
		return true
	}
	mayRun := slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return !decision.HasPodEnded(&pod) })
	if mayRun {
		o.timer.RequeueWithin(replacementDelay)
	}
	return mayRun
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
	uid := step.JobUID
	if uid == "" && o.HasStored { // otherwise another process may have created the Job again, after this process
		uid = o.CreatedJobs[step.JobName]
	}
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
	case isUnknown && !f.Answers.HasAllJobs: // as for a Job that does not exist
		o.question = &Question{AllJobs: true}
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
// it ended by itself, or nobody saw how the Pods ended, the Job is lost.
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
	case evidence.hasRunPod() && evidence.success == nil && evidence.failure == nil:
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

// Evidence is what the Pods of a step's Job have shown about its outcome. A Job that completed proves nothing by itself: a
// program that exits with 0 on SIGTERM, because its Pod is evicted, preempted, suspended or deleted, counts for
// the Job as a success. Nor does a Job that failed, if its Pods restart their containers: an evicted Pod counts as a failure.
// The zero value has seen no Pod.
type Evidence struct {
	pods map[types.UID]podEvidence
	// Watched is true if this process has observed all Pods of the Job: since it created the Job, or since it decided to delete it.
	Watched bool
	// success is the newest Pod whose container exited with 0 by itself, without all fields that the cache omits.
	success *corev1.Pod
	// failure is the newest end of the step's container by itself with another exit code; nil for none.
	failure *corev1.ContainerStateTerminated
}

// podEvidence is what the versions of a Pod have shown.
type podEvidence struct {
	outcome podOutcome
	// disrupted is true if the Pod was evicted, preempted or lost with its node.
	disrupted bool
	// restarts of its containers.
	restarts int32
	// created is when the Pod was created.
	created time.Time
	// hasRun is true if one of its containers has run, hasEnded if none can start any more, and isLost if the Pod was deleted unseen.
	hasRun, hasEnded, isLost bool
}

// podOutcome is empty for a Pod that was not requested to stop, and has not ended.
type podOutcome string

const (
	// podStopping is the outcome of a Pod that was requested to stop while the step's container ran.
	podStopping    podOutcome = "Stopping"
	podInterrupted podOutcome = "Interrupted"
	podSucceeded   podOutcome = "Succeeded"
	podFailed      podOutcome = "Failed"
)

// Observe adds what a version of a Pod shows. The first version that shows the end of the step's container decides: a Pod may be
// deleted at any time after that.
//
// If no version between the request to stop the Pod and the end of its container was observed, their times decide, which have
// the precision of a second: an end in the second of the request counts as interrupted. They also decide, with a tolerance for the
// node's clock, for a Pod of a lost node, which seems to run until its kubelet reports again.
func (e *Evidence) Observe(pod *corev1.Pod) {
	e.observeRun(pod)
	seen := e.pods[pod.UID]
	if seen.outcome == podInterrupted || seen.outcome == podSucceeded {
		return
	}
	requested := stopTime(pod)
	status := containerStatus(pod, pod.Labels[v1alpha1.LabelStep])
	terminated := status.State.Terminated
	byItself := func(end *corev1.ContainerStateTerminated) bool {
		return endedByItself(pod, end, end == terminated && seen.outcome == podStopping)
	}
	for _, end := range []*corev1.ContainerStateTerminated{terminated, status.LastTerminationState.Terminated} {
		if end != nil && end.ExitCode != 0 && byItself(end) && (e.failure == nil || e.failure.FinishedAt.Before(&end.FinishedAt)) {
			e.failure = end
		}
	}
	switch {
	case terminated != nil && terminated.ExitCode == 0: // final, also with restartPolicy OnFailure
		if seen.outcome = podInterrupted; byItself(terminated) {
			seen.outcome = podSucceeded
		}
	case terminated == nil && requested.IsZero() && pod.Status.Phase == corev1.PodSucceeded: // without the status of the container
		seen.outcome = podSucceeded
	case terminated == nil && !requested.IsZero() && !decision.HasPodEnded(pod):
		seen.outcome = podStopping
	case decision.HasPodEnded(pod) && seen.outcome == "":
		seen.outcome = podFailed
	}
	seen.disrupted = seen.disrupted || disruption(pod) != nil
	e.pods[pod.UID] = seen
	if seen.outcome == podSucceeded && (e.success == nil || e.success.CreationTimestamp.Before(&pod.CreationTimestamp)) {
		e.success = pod
	}
}

// endedByItself reports whether a container ended before its Pod was requested to stop. wasRunning is true if it seemed to run after
// the request.
func endedByItself(pod *corev1.Pod, end *corev1.ContainerStateTerminated, wasRunning bool) bool {
	requested, disrupted := stopTime(pod), disruption(pod)
	isOfLostNode := disrupted != nil && disrupted.Reason == decision.DeletionByTaintManager // its kubelet does not report
	isClockLate := !end.StartedAt.IsZero() && end.StartedAt.Before(&pod.CreationTimestamp)
	switch {
	case requested.IsZero():
		return true
	case wasRunning:
		return !isClockLate && isOfLostNode && end.FinishedAt.Add(maxClockLag).Before(requested)
	default:
		return !isClockLate && end.FinishedAt.Time.Before(requested)
	}
}

// observeRun adds whether a container of a Pod has run, how often containers were restarted, and whether another one can start.
func (e *Evidence) observeRun(pod *corev1.Pod) {
	if e.pods == nil {
		e.pods = map[types.UID]podEvidence{}
	}
	seen, restarts := e.pods[pod.UID], int32(0)
	for _, s := range containerStatuses(pod) {
		restarts += s.RestartCount
	}
	seen.created, seen.hasRun, seen.hasEnded = pod.CreationTimestamp.Time, seen.hasRun || HasRun(pod), seen.hasEnded || decision.HasPodEnded(pod)
	seen.restarts = max(seen.restarts, restarts)
	e.pods[pod.UID] = seen
}

// ObserveDeletion adds that a Pod does not exist any more. isLast is true if this is its last version.
func (e *Evidence) ObserveDeletion(pod *corev1.Pod, isLast bool) {
	e.Observe(pod)
	seen := e.pods[pod.UID]
	seen.hasEnded, seen.isLost = true, !isLast
	e.pods[pod.UID] = seen
}

// Clone returns a copy that can be changed.
func (e *Evidence) Clone() Evidence {
	clone := *e
	clone.pods = maps.Clone(e.pods)
	return clone
}

// firstPodDelay is how long after the start of a Job its first Pod is created. A Pod that replaces another one, which has run,
// is created later.
const firstPodDelay = time.Second

// has reports whether a Pod has this outcome.
func (e *Evidence) has(outcome podOutcome) bool {
	for _, pod := range e.pods {
		if pod.outcome == outcome {
			return true
		}
	}
	return false
}

// IsStopping reports whether a Pod was requested to stop.
func IsStopping(pod *corev1.Pod) bool { return !stopTime(pod).IsZero() }

// stopTime returns when a Pod was first requested to stop; zero if it was not.
func stopTime(pod *corev1.Pod) time.Time {
	requested := time.Time{}
	if pod.DeletionTimestamp != nil {
		requested = decision.DeletionRequestTime(pod)
	}
	if c := disruption(pod); c != nil && (requested.IsZero() || c.LastTransitionTime.Time.Before(requested)) {
		requested = c.LastTransitionTime.Time
	}
	return requested
}

// disruption returns the condition of a Pod that is evicted, preempted or lost with its node; nil for other Pods.
func disruption(pod *corev1.Pod) *corev1.PodCondition {
	if c := podCondition(pod, corev1.DisruptionTarget); c.Status == corev1.ConditionTrue {
		return &c
	}
	return nil
}

// NeedsEvidence reports whether the next decision depends on an ended Job, of a step or of an archive, and on how its Pods ended.
func NeedsEvidence(sj *v1alpha1.SequentialJob, job *batchv1.Job) bool {
	isOf := func(attempt *v1alpha1.JobAttempt) bool {
		return attempt.JobName == job.Name && (attempt.JobUID == "" || attempt.JobUID == job.UID)
	}
	step, isArchive := activeStep(sj.Status.Steps), isArchiving(&sj.Status) && isOf(&sj.Status.Archive.JobAttempt)
	later := findStep(sj.Status.Steps, job.Labels[v1alpha1.LabelStep])
	isLater := later != nil && isUnstarted(later) && job.Name == jobName(sj, sj.Status.Run, later.Name, 1)
	return IsTerminal(job) && (isArchive || isLater || step != nil && isOf(&step.JobAttempt))
}

// AddEnded adds a Job that was deleted after its end to the Jobs and to the UIDs of created Jobs, if the next decision depends on
// it. If there is another Job of its name, which the operator created because it did not know of this one, the other Job decides.
func AddEnded(sj *v1alpha1.SequentialJob, jobs []*batchv1.Job, created map[string]types.UID, ended *batchv1.Job) []*batchv1.Job {
	isReplaced := created[ended.Name] != "" && created[ended.Name] != ended.UID || findJobNamed(jobs, ended.Name) != nil
	if isReplaced || !NeedsEvidence(sj, ended) {
		return jobs
	}
	created[ended.Name] = ended.UID
	return append(jobs, ended)
}

// explain returns why the end of a Job says nothing about the step's program; empty if it does. With unknown, it depends on
// what was not seen of the Job's Pods.
func (e *Evidence) explain(job *batchv1.Job) (interruption string, unknown bool) {
	switch end := decision.FindEndCondition(job); {
	case hasOtherController(job): // its Pods may be in another cluster
		return "", false
	case end.Type == batchv1.JobComplete && hasOnePod(job) && e.success != nil: // also after a Pod that a suspension ended
		return "", false
	case end.Type == batchv1.JobComplete && e.has(podInterrupted):
		return "was requested to stop before its container ended, so that its exit code 0 proves nothing", false
	case end.Type == batchv1.JobComplete:
		return "", e.success == nil
	case !restartsContainers(job) || end.Reason != batchv1.JobReasonBackoffLimitExceeded:
		return "", false
	}
	disrupted, restarts := false, int32(0)
	for _, pod := range e.pods {
		disrupted, restarts = disrupted || pod.disrupted, restarts+pod.restarts
	}
	switch {
	case restarts >= max(1, ptr.Deref(job.Spec.BackoffLimit, 0)): // as the Job controller counts them
		return "", false
	case disrupted:
		return "was evicted, preempted or lost with its node, which is no failure of its container", false
	default:
		return "", e.failure == nil && !e.has(podStopping) && !e.has(podFailed)
	}
}

// HasRun reports whether a container of the Pod has ever started, be it of the step, an init container or a sidecar.
func HasRun(pod *corev1.Pod) bool {
	if pod.Annotations[annotationHasRun] != "" || pod.Status.Phase == corev1.PodSucceeded {
		return true
	}
	// The kubelet reports a container that never started as ended when its Pod is deleted, without an ID and a start.
	hasEnded := func(end *corev1.ContainerStateTerminated) bool {
		return end != nil && (end.ContainerID != "" || !end.StartedAt.IsZero())
	}
	return slices.ContainsFunc(append(containerStatuses(pod), pod.Status.EphemeralContainerStatuses...), func(c corev1.ContainerStatus) bool {
		return c.State.Running != nil || c.RestartCount > 0 || c.ContainerID != "" || ptr.Deref(c.Started, false) ||
			hasEnded(c.State.Terminated) || hasEnded(c.LastTerminationState.Terminated)
	})
}

const annotationHasRun = v1alpha1.Prefix + "has-run"

// HasRunMark are the annotations of a Pod without all statuses of its containers, of which one has run.
var HasRunMark = map[string]string{annotationHasRun: "true"}

// EvidenceWithoutJob returns the step whose evidence the next decision needs although its Job may not exist any more; nil for none.
func EvidenceWithoutJob(sj *v1alpha1.SequentialJob) *v1alpha1.StepStatus {
	if step := activeStep(sj.Status.Steps); step != nil && (isBeingReplaced(step) || hasMissedStart(step)) {
		return step
	}
	return nil
}

// hasMissedStart reports whether the Job of a step is being deleted because it did not start in time.
func hasMissedStart(step *v1alpha1.StepStatus) bool {
	return step.Phase == v1alpha1.StepStopping && step.Reason == v1alpha1.ReasonStartDeadlineExceeded
}

// provesNoRun reports whether no container of a Job has run. Pods that nobody saw prove nothing: this process has watched all Pods of the
// Job, or the only known Pod is the first, because it was created when the Job started. started is nil if this cannot be known.
func (e *Evidence) provesNoRun(started *metav1.Time) bool {
	isFirst := false
	for _, pod := range e.pods {
		if pod.hasRun || pod.isLost {
			return false
		}
		isFirst = len(e.pods) == 1 && started != nil && !pod.created.After(started.Add(firstPodDelay))
	}
	return e.Watched || isFirst
}

// hasRunPod reports whether a container of the Job is known to have run.
func (e *Evidence) hasRunPod() bool {
	for _, pod := range e.pods {
		if pod.hasRun {
			return true
		}
	}
	return false
}

// awaitsPods reports whether a Pod has not ended.
func (e *Evidence) awaitsPods() bool {
	for _, pod := range e.pods {
		if !pod.hasEnded {
			return true
		}
	}
	return false
}
