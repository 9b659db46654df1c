package sequentialjob

import (
	"maps"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

const (
	// maxPodLag is how long after the end of a Job the cache may still not show how the Job's Pods ended.
	maxPodLag = 10 * time.Second
	// evidenceRetry is when the next decision observes the Pods again.
	evidenceRetry = time.Second
)

// Evidence is what the Pods of a step's Job have shown about its outcome. A Job that completed proves nothing by itself: a
// program that exits with 0 on SIGTERM, because its Pod is evicted, preempted, suspended or deleted, counts for
// the Job as a success. The zero value has seen no Pod.
type Evidence struct {
	// outcomes of the Pods that exited with 0 or were requested to stop.
	outcomes map[types.UID]podOutcome
	// success is the newest Pod whose container exited with 0 by itself, without all fields that the cache omits.
	success *corev1.Pod
}

type podOutcome string

const (
	// podStopping is the outcome of a Pod that was requested to stop while the step's container ran.
	podStopping    podOutcome = "Stopping"
	podInterrupted podOutcome = "Interrupted"
	podSucceeded   podOutcome = "Succeeded"
)

// Observe adds what a version of a Pod shows. The first version that shows the end of the step's container decides: a Pod may be
// deleted at any time after that.
//
// If no version between the request to stop the Pod and the end of its container was observed, their times decide, which have
// the precision of a second: an end in the second of the request counts as interrupted.
func (e *Evidence) Observe(pod *corev1.Pod) {
	before := e.outcomes[pod.UID]
	if before == podInterrupted || before == podSucceeded {
		return
	}
	terminated := terminatedState(pod, pod.Labels[v1alpha1.LabelStep])
	requested := stopTime(pod)
	after := podSucceeded
	switch {
	case terminated != nil && terminated.ExitCode == 0: // final, also with restartPolicy OnFailure
		if before == podStopping || !requested.IsZero() && !terminated.FinishedAt.Time.Before(requested) {
			after = podInterrupted
		}
	case terminated == nil && requested.IsZero() && pod.Status.Phase == corev1.PodSucceeded: // without the status of the container
	case terminated == nil && !requested.IsZero() && !decision.HasPodEnded(pod):
		after = podStopping
	default:
		return
	}
	if e.outcomes == nil {
		e.outcomes = map[types.UID]podOutcome{}
	}
	e.outcomes[pod.UID] = after
	if after == podSucceeded && (e.success == nil || e.success.CreationTimestamp.Before(&pod.CreationTimestamp)) {
		e.success = pod
	}
}

// Clone returns a copy that can be changed.
func (e *Evidence) Clone() Evidence { return Evidence{maps.Clone(e.outcomes), e.success} }

// wasInterrupted reports whether a Pod that counts as succeeded was requested to stop before its container ended.
func (e *Evidence) wasInterrupted() bool {
	for _, outcome := range e.outcomes {
		if outcome == podInterrupted {
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
		requested = pod.DeletionTimestamp.Add(-time.Duration(ptr.Deref(pod.DeletionGracePeriodSeconds, 0)) * time.Second)
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && (requested.IsZero() || c.LastTransitionTime.Time.Before(requested)) {
			requested = c.LastTransitionTime.Time
		}
	}
	return requested
}

// NeedsEvidence reports whether the next decision depends on how the Pods of an ended Job ended.
func NeedsEvidence(sj *v1alpha1.SequentialJob, job *batchv1.Job) bool {
	step := activeStep(sj.Status.Steps)
	return step != nil && step.JobName == job.Name && IsTerminal(job)
}

// evidenceOf returns the evidence of a Job with the Pods of a live list, if there was one.
func (e *evaluation) evidenceOf(job *batchv1.Job) Evidence {
	stored := e.Evidence[job.UID]
	evidence := stored.Clone()
	for i := range e.Answers.PodsByJob[job.UID] {
		evidence.Observe(&e.Answers.PodsByJob[job.UID][i])
	}
	return evidence
}

// doubtSuccess returns the verdict on a complete Job whose success is not proven: that the attempt was interrupted, that its
// outcome is not known, or, with waits, that it is not known yet. It may set a question instead.
func (e *evaluation) doubtSuccess(step *v1alpha1.StepStatus, job *batchv1.Job, evidence *Evidence) (verdict stepVerdict, waits bool) {
	_, listed := e.Answers.PodsByJob[job.UID]
	end := decision.FindEndCondition(job).LastTransitionTime
	switch {
	case evidence.wasInterrupted():
		e.recordJob(step, job)
		e.decision.Events = append(e.decision.Events, decision.WarningEvent(v1alpha1.EventStepInterrupted, actionRun,
			"A Pod of step "+step.Name+" was requested to stop before its container ended, so that its exit code 0 proves nothing; the step runs again"))
		return stepVerdict{phase: v1alpha1.StepInterrupted, reason: v1alpha1.ReasonInterrupted}, false
	case evidence.success != nil:
		return stepVerdict{}, false
	case !listed:
		e.decision.Question = &Question{PodsOf: job}
		return stepVerdict{}, true
	case !e.timer.HasReached(end.Add(maxPodLag)):
		e.timer.RequeueWithin(evidenceRetry)
		return stepVerdict{}, true
	case e.spec.OnLostJob == v1alpha1.LostJobRerun:
		e.recordJob(step, job)
		return stepVerdict{phase: v1alpha1.StepLost, reason: v1alpha1.ReasonOutcomeUnknown}, false
	}
	e.recordJob(step, job)
	return e.failedWithoutJob(step, v1alpha1.ReasonOutcomeUnknown, "Job "+job.Name+" is complete, but its Pods were deleted while no operator observed how they ended"), false
}
