package sequentialjob

import (
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
	// replacementDelay is the time between the deletion of a Job and the judgment of what its Pods have shown: the Pods' last events
	// arrive in another stream than the Job's.
	replacementDelay = 3 * time.Second
	// firstPodDelay is how long after the start of a Job its first Pod is created. A Pod that replaces another one, which has run,
	// is created later.
	firstPodDelay = time.Second
)

// notStartedReasons are the reasons of a step that waits, and whose Pods may not have run a container.
var notStartedReasons = []string{
	v1alpha1.ReasonImagePull, v1alpha1.ReasonConfigError, v1alpha1.ReasonPodNotCreated, v1alpha1.ReasonQueued,
	corev1.PodReasonUnschedulable, corev1.PodReasonSchedulingGated,
	v1alpha1.ReasonQuotaExceeded, v1alpha1.ReasonNameTaken, v1alpha1.ReasonImageNotAllowed, v1alpha1.ReasonWorkspaceTerminating,
}

// isCorrectable reports whether the spec may change an active step, because it waits, or because its Job is being replaced. The operator
// replaces a Job only if no container of it has run.
func isCorrectable(step *v1alpha1.StepStatus) bool {
	return isBeingReplaced(step) || (step.Phase == v1alpha1.StepStarting || step.Phase == v1alpha1.StepQueued) && step.FailedPods == 0 && slices.Contains(notStartedReasons, step.Reason)
}

func isBeingReplaced(step *v1alpha1.StepStatus) bool {
	return step.Phase == v1alpha1.StepStopping && step.Reason == v1alpha1.ReasonReplaced
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
	if step := activeStep(sj.Status.Steps); step != nil && isBeingReplaced(step) {
		return step
	}
	return nil
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
		if !pod.hasEnded && !pod.isLost {
			return true
		}
	}
	return false
}

// replaceJob deletes the Job of a waiting step that the spec has corrected, if none of its containers has run. It reports whether
// the Job is being deleted, or sets a question.
func (e *evaluation) replaceJob(step *v1alpha1.StepStatus, job *batchv1.Job) bool {
	stepSpec := findStepSpec(e.spec, step.Name)
	if stepSpec == nil || !isCorrectable(step) || isSpecInvalid(&e.status) ||
		!hasOtherContent(job, stepJob(e.current(), stepSpec, step.Run, step.Attempt)) {
		return keepJob(step)
	}
	if _, listed := e.Answers.PodsByJob[job.UID]; !listed {
		e.decision.Question = &Question{PodsOf: job}
		return true
	}
	evidence := e.evidenceOf(job)
	wasSuspended := slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool { return c.Type == batchv1.JobSuspended })
	started := job.Status.StartTime
	if wasSuspended || !hasOnePod(job) { // Jobs do not count the Pods that a suspension ended
		started = nil
	}
	if job.Status.Failed > 0 || hasStartedPod(job) || hasOtherController(job) || !evidence.provesNoRun(started) {
		return keepJob(step)
	}
	e.stopStep(step, job, v1alpha1.StepStopping, decision.Problem{
		Reason: v1alpha1.ReasonReplaced, Message: "the spec was corrected before a container ran; Job " + job.Name + " is replaced",
	})
	step.NextAttemptTime = new(metav1.NewTime(e.now.Add(replacementDelay)))
	return true
}

// keepJob takes back that a Job is being replaced, for example because the spec was changed back before the Job was deleted.
func keepJob(step *v1alpha1.StepStatus) bool {
	if isBeingReplaced(step) {
		step.Phase, step.Reason, step.Message, step.NextAttemptTime = v1alpha1.StepStarting, "", "", nil
	}
	return false
}

// hasOtherContent reports whether a Job was created from an earlier version of the spec, which says something else about the Job.
func hasOtherContent(job, wanted *batchv1.Job) bool {
	created := job.Annotations[v1alpha1.AnnotationContentHash]
	return created != "" && created != wanted.Annotations[v1alpha1.AnnotationContentHash] &&
		job.Annotations[v1alpha1.AnnotationGeneration] != wanted.Annotations[v1alpha1.AnnotationGeneration]
}

// evaluateReplacedJob returns the verdict on an attempt whose deleted Job does not exist any more. If a container ran after all, it was
// interrupted; if nobody saw how the Pods ended, the Job is lost.
func (e *evaluation) evaluateReplacedJob(step *v1alpha1.StepStatus) stepVerdict {
	evidence := e.Evidence[step.JobUID]
	judgedAt := ptr.Deref(step.NextAttemptTime, e.now)
	switch {
	case !e.timer.HasReached(judgedAt.Time):
		return stepVerdict{}
	case evidence.awaitsPods() && !e.timer.HasReached(judgedAt.Add(maxPodLag)):
		e.timer.RequeueWithin(evidenceRetry)
		return stepVerdict{}
	}
	step.NextAttemptTime = nil
	switch {
	case evidence.hasRunPod():
		e.decision.Events = append(e.decision.Events, decision.WarningEvent(v1alpha1.EventStepInterrupted, actionRun,
			fmt.Sprintf("A container of step %s started while its Job was being replaced; the step runs again", step.Name)))
		return stepVerdict{phase: v1alpha1.StepInterrupted, reason: v1alpha1.ReasonInterrupted}
	case !evidence.awaitsPods() && evidence.provesNoRun(nil):
		e.decision.Events = append(e.decision.Events, decision.NormalEvent(v1alpha1.EventJobReplaced, actionRun,
			fmt.Sprintf("Job %s of step %s, of which no container had run, is replaced: the spec was corrected", step.JobName, step.Name)))
		return stepVerdict{phase: v1alpha1.StepInterrupted, reason: v1alpha1.ReasonReplaced}
	case e.spec.OnLostJob == v1alpha1.LostJobRerun:
		return stepVerdict{phase: v1alpha1.StepLost, reason: v1alpha1.ReasonJobLost}
	}
	return e.failedWithoutJob(step, v1alpha1.ReasonJobLost, "Job "+step.JobName+" was deleted to replace it, and nobody saw whether its Pods ran meanwhile")
}
