package session

import (
	"fmt"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

const (
	// gracePeriod is how long a Pod has to end.
	gracePeriod = gracePeriodSeconds * time.Second
	// stuckPodDelay is how long after its grace a Pod is taken for stuck.
	stuckPodDelay = 30 * time.Second
	// maxDisruptions is how often a run is tried again that was disrupted.
	maxDisruptions = 5
)

// observe sees how the open attempt's Job gets on.
func (d *evaluation) observe(job *batchv1.Job) {
	d.current, d.pod = job, d.podOf(job.UID)
	d.status.JobUID = job.UID
	d.status.WaitingSince = nil
	if d.status.JobStartTime == nil {
		d.status.JobStartTime = job.Status.StartTime
	}
	d.started()
	d.readResult()
	d.jobConditions()
	end := findEndCondition(job)
	if end != nil && endedBeforeDeletion(job, end) {
		d.conclude(end)
		return
	}
	if d.status.StopTime == nil {
		d.decideToStop()
	}
	switch {
	case d.status.StopTime != nil:
		d.stop()
	case end == nil:
		d.decision.ApplyObjects = d.guards()
		d.giveUpStart()
	}
}

// endedBeforeDeletion tells whether a Job's end counts: it does not if somebody deleted the Job before.
// A runner that fails in the second in which it is told to end may have failed for that.
func endedBeforeDeletion(job *batchv1.Job, end *batchv1.JobCondition) bool {
	if job.DeletionTimestamp.IsZero() {
		return true
	}
	told, at := job.DeletionTimestamp.Time, end.LastTransitionTime.Time
	return at.Before(told) || end.Type == batchv1.JobComplete && at.Equal(told)
}

// podOf is the newest Pod of the Job with that UID: an older run's Job may have had the same
// name.
func (d *evaluation) podOf(job types.UID) *corev1.Pod {
	var newest *corev1.Pod
	for i := range d.observation.Pods {
		pod := &d.observation.Pods[i]
		controller := metav1.GetControllerOf(pod)
		if controller == nil || controller.UID != job {
			continue
		}
		if newest == nil || newest.CreationTimestamp.Before(&pod.CreationTimestamp) {
			newest = pod
		}
	}
	return newest
}

// runnerStatus is that of the runner's container; nil if there is none yet.
func (d *evaluation) runnerStatus() *corev1.ContainerStatus {
	if d.pod == nil {
		return nil
	}
	for i := range d.pod.Status.ContainerStatuses {
		if c := &d.pod.Status.ContainerStatuses[i]; c.Name == v1alpha1.RunnerContainer {
			return c
		}
	}
	return nil
}

// exit is how the runner ended; nil if that is not known.
func (d *evaluation) exit() *corev1.ContainerStateTerminated {
	if c := d.runnerStatus(); c != nil {
		return c.State.Terminated
	}
	return nil
}

func (d *evaluation) exitCode() *int32 {
	if exit := d.exit(); exit != nil {
		return &exit.ExitCode
	}
	return nil
}

// started notes when the runner has started. An interactive one has when it is ready.
func (d *evaluation) started() {
	c := d.runnerStatus()
	if d.status.RunnerStartTime != nil || c == nil {
		return
	}
	at := metav1.Time{}
	switch {
	case c.State.Terminated != nil:
		at = c.State.Terminated.StartedAt
	case c.State.Running != nil && (!d.spec.Interactive || c.Ready):
		at = c.State.Running.StartedAt
	default:
		return
	}
	if at.IsZero() || d.spec.Interactive {
		at = d.now
	}
	d.status.RunnerStartTime = &at
	if d.status.StartTime == nil {
		d.status.StartTime = &at
	}
}

// decideToStop stops the session if it is to be.
func (d *evaluation) decideToStop() {
	reason := d.stopReason()
	if reason == "" {
		return
	}
	d.status.StopTime, d.status.StoppedReason = &d.now, reason
}

func (d *evaluation) stopReason() v1alpha1.StopReason {
	if d.spec.OperatingMode == v1alpha1.ModeStopped {
		return v1alpha1.StopUser
	}
	// What nobody could tell is not looked at: see checkActivity.
	if d.status.RunnerStartTime == nil || d.resolved == nil || !d.resolved.runner.Spec.ActivityLease {
		return ""
	}
	active := d.status.RunnerStartTime.Time
	if activity := d.observation.Activity; activity != nil {
		if d.spec.Interactive && d.spec.StopOnRunFinished && activity.FinishedJob == d.status.Job {
			return v1alpha1.StopRunFinished
		}
		if activity.RenewTime.After(active) && !activity.RenewTime.After(d.observation.Now) {
			active = activity.RenewTime
		} else if activity.RenewTime.After(d.observation.Now) { // its clock is ahead
			active = d.observation.Now
		}
	}
	d.showActivity(active)
	idle := secondsOrDefault(d.spec.InactivityTimeout, 0)
	if idle > 0 && d.reached(active.Add(time.Duration(idle)*time.Second)) {
		return v1alpha1.StopInactivity
	}
	return ""
}

// showActivity does not write a status for each time that a Lease is renewed.
func (d *evaluation) showActivity(active time.Time) {
	const often = time.Minute
	if last := d.status.LastActivityTime; last == nil || active.Sub(last.Time) >= often {
		d.status.LastActivityTime = new(metav1.NewTime(active.Truncate(time.Second)))
	}
}

// stop ends the Job. It is gone when its Pod is: nobody is killed before that time.
func (d *evaluation) stop() {
	if d.current.DeletionTimestamp.IsZero() {
		d.decision.DeleteJobs = append(d.decision.DeleteJobs, d.current)
	}
	d.reached(d.stuckTime())
}

func (d *evaluation) stuckTime() time.Time { return d.status.StopTime.Add(gracePeriod + stuckPodDelay) }

// gone is an attempt whose Job was there, and is not any more. Its Pod may be remembered.
func (d *evaluation) gone() {
	d.pod = d.podOf(d.status.JobUID)
	d.readResult()
	if d.status.StopTime != nil {
		// Its Pod had no longer than this, however late it is noticed.
		end := earlierTime(d.observation.Now, d.status.StopTime.Add(gracePeriod))
		d.close(verdict{outcome: v1alpha1.RunStopped, reason: string(d.status.StoppedReason), exitCode: d.exitCode(), end: end})
		return
	}
	end := d.observation.Now
	if left, limited := d.left(); limited && d.status.JobStartTime != nil {
		end = earlierTime(end, d.status.JobStartTime.Add(time.Duration(left)*time.Second))
	}
	d.closeFailed(verdict{
		reason: v1alpha1.ReasonPodLost, message: "its Job vanished before its outcome was seen", exitCode: d.exitCode(), end: end,
	})
}

// conclude records how a Job that has ended did.
func (d *evaluation) conclude(end *batchv1.JobCondition) {
	c := verdict{exitCode: d.exitCode(), end: d.endOf(end)}
	if end.Type == batchv1.JobComplete {
		c.outcome, c.reason = v1alpha1.RunCompleted, v1alpha1.ReasonCompleted
	} else {
		d.judge(&c, end)
	}
	if c.outcome == v1alpha1.RunCompleted {
		d.close(c)
		return
	}
	d.closeFailed(c)
}

func (d *evaluation) endOf(end *batchv1.JobCondition) time.Time {
	switch {
	case d.current.Status.CompletionTime != nil:
		return d.current.Status.CompletionTime.Time
	case !end.LastTransitionTime.IsZero():
		return end.LastTransitionTime.Time
	default:
		return d.now.Time
	}
}

// judge tells why a Job failed. Only the runner's exit decides, never a sidecar's; and not
// its exit either when it had to end, whatever it then says.
func (d *evaluation) judge(c *verdict, end *batchv1.JobCondition) {
	exit := d.exit()
	switch disrupted := d.disruption(); {
	case end.Reason == batchv1.JobReasonDeadlineExceeded:
		c.reason, c.message = v1alpha1.ReasonDeadlineExceeded, "all of the session's time is used up"
	case disrupted != nil:
		c.reason, c.message = disrupted.reason, disrupted.message
	case exit == nil:
		c.reason, c.message = v1alpha1.ReasonPodLost, formatReason(end.Reason, end.Message)
	case exit.ExitCode == 0:
		c.outcome, c.reason = v1alpha1.RunCompleted, v1alpha1.ReasonCompleted
	case exit.Reason == v1alpha1.ReasonOOMKilled:
		c.reason, c.message = v1alpha1.ReasonOOMKilled, "the runner had more memory than its limit"
	default:
		c.reason, c.message = v1alpha1.ReasonExitedWithError, fmt.Sprintf("the runner exited with code %d", exit.ExitCode)
		if d.status.Result == nil || d.status.Result.Attempt != d.status.Attempt {
			if said := strings.TrimSpace(exit.Message); said != "" {
				c.message += ": " + said
			}
		}
	}
}

// disruption is why the Pod had to end before its runner did; nil if it had not.
func (d *evaluation) disruption() *problem {
	if d.pod == nil {
		return nil
	}
	if d.pod.Status.Reason == v1alpha1.ReasonEvicted {
		return &problem{v1alpha1.ReasonEvicted, d.pod.Status.Message}
	}
	c := d.podCondition(corev1.DisruptionTarget, corev1.ConditionTrue)
	if c == nil {
		return nil
	}
	switch c.Reason {
	case "DeletionByTaintManager", "DeletionByPodGC":
		return &problem{v1alpha1.ReasonPodLost, formatReason(c.Reason, c.Message)}
	default:
		return &problem{v1alpha1.ReasonEvicted, formatReason(c.Reason, c.Message)}
	}
}

// startFailureReasons are the reasons for which a container does not start before somebody has changed
// something, by what they mean.
var startFailureReasons = map[string]string{
	"ErrImagePull":               v1alpha1.ReasonImagePull,
	"ImagePullBackOff":           v1alpha1.ReasonImagePull,
	"InvalidImageName":           v1alpha1.ReasonImagePull,
	"ErrImageNeverPull":          v1alpha1.ReasonImagePull,
	"ImageInspectError":          v1alpha1.ReasonImagePull,
	"RegistryUnavailable":        v1alpha1.ReasonImagePull,
	"CreateContainerConfigError": v1alpha1.ReasonConfigError,
	"CreateContainerError":       v1alpha1.ReasonConfigError,
	"RunContainerError":          v1alpha1.ReasonConfigError,
	"CrashLoopBackOff":           v1alpha1.ReasonConfigError,
}

// startProblem is why the runner does not start; nil if it only has not yet. A sidecar that
// does not start keeps it from starting, too.
func (d *evaluation) startProblem() *problem {
	if d.pod == nil || d.status.RunnerStartTime != nil {
		return nil
	}
	statuses := append(append([]corev1.ContainerStatus(nil), d.pod.Status.InitContainerStatuses...), d.pod.Status.ContainerStatuses...)
	for i := range statuses {
		waiting := statuses[i].State.Waiting
		if waiting == nil || startFailureReasons[waiting.Reason] == "" {
			continue
		}
		return &problem{startFailureReasons[waiting.Reason], "container " + statuses[i].Name + ": " + formatReason(waiting.Reason, waiting.Message)}
	}
	return nil
}

// unready is what a Pod that a node has taken is given up for if it lasts: a Secret, a volume
// or the network that it needs is not there. While an image is pulled that is over already. In
// every start it is so for a moment, and the kubelet's events alone tell more.
func (d *evaluation) unready() *problem {
	if d.status.RunnerStartTime != nil {
		return nil
	}
	if d.podCondition(corev1.PodReadyToStartContainers, corev1.ConditionFalse) == nil {
		return nil
	}
	return &problem{v1alpha1.ReasonConfigError, "its node cannot get Pod " + d.pod.Name +
		" ready to start: look for a Secret or a volume that is missing, and at the Pod's events"}
}

// podCondition is that of the Pod, if it has this status.
func (d *evaluation) podCondition(kind corev1.PodConditionType, status corev1.ConditionStatus) *corev1.PodCondition {
	if d.pod == nil {
		return nil
	}
	for i := range d.pod.Status.Conditions {
		if c := &d.pod.Status.Conditions[i]; c.Type == kind && c.Status == status {
			return c
		}
	}
	return nil
}

// giveUpStart ends an attempt whose runner cannot start.
func (d *evaluation) giveUpStart() {
	problem := d.startProblem()
	if problem == nil {
		problem = d.unready()
	}
	limit := secondsOrDefault(d.spec.StartupTimeout, defaultStartupTimeoutSeconds)
	if problem == nil || limit == 0 {
		return
	}
	if !d.reached(d.startBegun().Add(time.Duration(limit) * time.Second)) {
		return
	}
	d.decision.ApplyObjects = nil
	if d.current.DeletionTimestamp.IsZero() {
		d.decision.DeleteJobs = append(d.decision.DeleteJobs, d.current)
	}
	d.close(verdict{outcome: v1alpha1.RunFailed, reason: problem.reason, message: problem.message, end: d.now.Time})
}

// startBegun is since when the attempt might have started. What it waited for a node is
// nobody's mistake, and does not count.
func (d *evaluation) startBegun() time.Time {
	if c := d.podCondition(corev1.PodScheduled, corev1.ConditionTrue); c != nil && !c.LastTransitionTime.IsZero() {
		return c.LastTransitionTime.Time
	}
	if d.status.JobStartTime != nil {
		return d.status.JobStartTime.Time
	}
	return d.current.CreationTimestamp.Time
}

func earlierTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func formatReason(reason, message string) string {
	if message == "" {
		return reason
	}
	return reason + ": " + message
}
