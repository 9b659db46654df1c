package agenticsession

import (
	"cmp"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// queueLabel is the label with which Kueue manages a Job.
const queueLabel = "kueue.x-k8s.io/queue-name"

// followSuspension observes that the open attempt's Job started, or that a queue or another client suspended or resumed
// it. A suspended Job loses its Pod, and gets another Pod when it is resumed, in the same attempt. Time without a Pod
// does not count.
func (e *evaluation) followSuspension() {
	job := e.job
	var change *batchv1.JobCondition // whether and since when the Job is suspended; nil if it never was
	if i := slices.IndexFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool { return c.Type == batchv1.JobSuspended }); i >= 0 {
		change = &job.Status.Conditions[i]
	}
	if ptr.Deref(job.Spec.Suspend, false) {
		hasStarted := e.status.Attempt.StartTime != nil || job.Status.StartTime != nil
		isStopped := !hasStarted || change != nil && change.Status == corev1.ConditionTrue
		if job.Status.Active > 0 || ptr.Deref(job.Status.Terminating, 0) > 0 || !isStopped {
			return // it still has Pods
		}
		if end := e.stoppedPodEnd(change); !e.endMeteredPart(end) {
			e.closePart(end)
			e.pod = nil
			e.waitForResumption()
		}
		return
	}
	if change == nil { // the Job was never suspended
		e.status.Attempt.StartTime = cmp.Or(e.status.Attempt.StartTime, job.Status.StartTime)
		return
	}
	started := job.Status.StartTime
	if e.status.Attempt.StartTime != nil && (started == nil || started.After(e.status.Attempt.StartTime.Time)) {
		end := e.stoppedPodEnd(change)
		if e.endMeteredPart(end) {
			return
		}
		e.closePart(end)
	}
	if e.isPodOfEarlierPart(change) {
		e.pod = nil
	}
	if change.Status != corev1.ConditionTrue { // otherwise the Job still has the start time of before its suspension
		e.status.Attempt.StartTime = cmp.Or(e.status.Attempt.StartTime, started)
	}
}

// isPodOfEarlierPart reports whether the Pod was deleted because its Job was suspended. It may still be in the cache, or
// remembered, after the Job was resumed.
func (e *evaluation) isPodOfEarlierPart(change *batchv1.JobCondition) bool {
	pod := e.pod
	switch {
	case pod == nil, pod.DeletionTimestamp == nil && pod.UID != e.observation.DeletedPod:
		return false
	case change.Status == corev1.ConditionTrue, pod.CreationTimestamp.Before(&change.LastTransitionTime):
		return true
	}
	// All times have the precision of a second: the Pod may have been created in the second in which its Job was resumed.
	deleted := pod.CreationTimestamp.Time // at the earliest, without a grace period
	if pod.DeletionTimestamp != nil {
		deleted = decision.DeletionRequestTime(pod)
	}
	return !deleted.After(change.LastTransitionTime.Time)
}

// stoppedPodEnd returns when the last Pod before a suspension ended, or the latest time at which it can have ended.
func (e *evaluation) stoppedPodEnd(change *batchv1.JobCondition) time.Time {
	end := e.observation.Now
	if change == nil {
		return end
	}
	if termination := runnerTermination(e.pod); termination != nil && e.isPodOfEarlierPart(change) && !termination.FinishedAt.IsZero() {
		return earlierTime(end, termination.FinishedAt.Time)
	}
	if change.Status == corev1.ConditionTrue {
		return earlierTime(end, change.LastTransitionTime.Add(gracePeriod))
	}
	return earlierTime(end, change.LastTransitionTime.Time) // the suspension was not observed
}

// closePart adds the time of a Pod that was stopped because its Job was suspended, and resets the status for the next
// Pod, for which the activity of this Pod does not count.
func (e *evaluation) closePart(end time.Time) {
	s := &e.status
	if start := e.activeStart(); start != nil {
		s.ActiveDuration.Duration.Duration += time.Duration(secondsBetween(start.Time, end)) * time.Second
	}
	s.Attempt.StartTime, s.Attempt.RunnerStartTime, s.Attempt.ActiveSince, s.Attempt.LastActivityTime = nil, nil, nil, nil
	if activity := e.observation.Activity; activity != nil && !activity.RenewTime.IsZero() {
		s.Attempt.LeaseRenewTime = new(metav1.NewMicroTime(activity.RenewTime))
	}
}

// waitForResumption reports why a suspended Job waits. Without time left, its runner would be stopped at once.
func (e *evaluation) waitForResumption() {
	if left, limited := remainingSeconds(&e.observation, &e.status); limited && left == 0 {
		e.deleteJob(e.job)
		e.failRun(problemTimeUsedUp)
		return
	}
	problem := decision.Problem{Reason: v1alpha1.ReasonQueued, Message: "Job " + e.job.Name + " waits in queue " + e.job.Labels[queueLabel]}
	if e.job.Labels[queueLabel] == "" {
		problem = decision.Problem{
			Reason:  v1alpha1.ReasonJobSuspended,
			Message: "another client suspended Job " + e.job.Name + "; set its spec.suspend to false",
		}
	}
	e.waitFor(problem.Reason, problem.Message, false)
	e.status.QueuedSince = &e.now
	if since := e.observation.Session.Status.QueuedSince; since != nil {
		e.status.QueuedSince = since
	}
}
