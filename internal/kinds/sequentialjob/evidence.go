package sequentialjob

import (
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

// Evidence is what the Pods of a step's Job have shown about its outcome. A Job that completed proves nothing by itself: a
// program that exits with 0 on SIGTERM, because its Pod is evicted, preempted, suspended or deleted, counts for
// the Job as a success. Nor does a Job that failed, if its Pods restart their containers: an evicted Pod counts as a failure.
// The zero value has seen no Pod.
type Evidence struct {
	pods map[types.UID]podEvidence
	// Watched is true if this process has observed all Pods of the Job: since it created the Job, or since it listed them to replace it.
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
// the precision of a second: an end in the second of the request counts as interrupted.
func (e *Evidence) Observe(pod *corev1.Pod) {
	e.observeRun(pod)
	seen := e.pods[pod.UID]
	if seen.outcome == podInterrupted || seen.outcome == podSucceeded {
		return
	}
	requested := stopTime(pod)
	byItself := func(end *corev1.ContainerStateTerminated) bool {
		return requested.IsZero() || end.FinishedAt.Time.Before(requested)
	}
	status := containerStatus(pod, pod.Labels[v1alpha1.LabelStep])
	terminated := status.State.Terminated
	for _, end := range []*corev1.ContainerStateTerminated{terminated, status.LastTerminationState.Terminated} {
		wasStopped := end == terminated && seen.outcome == podStopping
		if end != nil && end.ExitCode != 0 && !wasStopped && byItself(end) && (e.failure == nil || e.failure.FinishedAt.Before(&end.FinishedAt)) {
			e.failure = end
		}
	}
	switch {
	case terminated != nil && terminated.ExitCode == 0: // final, also with restartPolicy OnFailure
		seen.outcome = podSucceeded
		if e.pods[pod.UID].outcome == podStopping || !byItself(terminated) {
			seen.outcome = podInterrupted
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

// observeRun adds whether a container of a Pod has run, how often containers were restarted, and whether another one can start.
func (e *Evidence) observeRun(pod *corev1.Pod) {
	if e.pods == nil {
		e.pods = map[types.UID]podEvidence{}
	}
	seen := e.pods[pod.UID]
	seen.created, seen.hasRun, seen.hasEnded = pod.CreationTimestamp.Time, seen.hasRun || HasRun(pod), seen.hasEnded || decision.HasPodEnded(pod)
	restarts := int32(0)
	for _, s := range containerStatuses(pod) {
		restarts += s.RestartCount
	}
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
		requested = pod.DeletionTimestamp.Add(-time.Duration(ptr.Deref(pod.DeletionGracePeriodSeconds, 0)) * time.Second)
	}
	if c := disruption(pod); c != nil && (requested.IsZero() || c.LastTransitionTime.Time.Before(requested)) {
		requested = c.LastTransitionTime.Time
	}
	return requested
}

// disruption returns the condition of a Pod that is evicted, preempted or lost with its node; nil for other Pods.
func disruption(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

// NeedsEvidence reports whether the next decision depends on an ended Job, of a step or of an archive, and on how its Pods ended.
func NeedsEvidence(sj *v1alpha1.SequentialJob, job *batchv1.Job) bool {
	isOf := func(attempt *v1alpha1.JobAttempt) bool {
		return attempt.JobName == job.Name && (attempt.JobUID == "" || attempt.JobUID == job.UID)
	}
	step, isArchive := activeStep(sj.Status.Steps), isArchiving(&sj.Status) && isOf(&sj.Status.Archive.JobAttempt)
	return IsTerminal(job) && (isArchive || step != nil && isOf(&step.JobAttempt))
}

// AddEnded adds a Job that was deleted after its end to the Jobs and to the UIDs of created Jobs, if the next decision depends on
// it. If the operator created another Job of its name, because it did not know of this one, the other Job decides.
func AddEnded(sj *v1alpha1.SequentialJob, jobs []*batchv1.Job, created map[string]types.UID, ended *batchv1.Job) []*batchv1.Job {
	isReplaced := created[ended.Name] != "" && created[ended.Name] != ended.UID ||
		slices.ContainsFunc(jobs, func(job *batchv1.Job) bool { return job.Name == ended.Name && job.UID != ended.UID })
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
