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

const (
	gracePeriod = gracePeriodSeconds * time.Second
	// stuckPodDelay is how long after its grace period a Pod is reported as stuck.
	stuckPodDelay = 30 * time.Second
	// maxPodLag is how long after the end of a Job the end of its Pod may be observed.
	maxPodLag = 10 * time.Second
)

func (e *evaluation) followAttempt(job *batchv1.Job) *Question {
	wasCreated := e.status.Attempt.JobUID != "" || e.observation.CreatedJobs[e.status.Attempt.JobName] != ""
	switch {
	case job == nil && !wasCreated && (e.spec.Suspend || e.settings == nil || e.checkImages() != nil):
		e.status.Attempt.JobName, e.status.Attempt.Runner, e.status.Attempt.StopTime = "", "", nil // an attempt without a Job leaves no record
	case job == nil && !wasCreated:
		for _, check := range []func() workspaceState{e.resolveWorkspace, e.checkWorkspaceFree} {
			if state := check(); !state.usable {
				return state.question
			}
		}
		e.createAttemptObjects()
	case job == nil, e.status.Attempt.JobUID != "" && e.status.Attempt.JobUID != job.UID:
		e.closeLostAttempt()
	default:
		return e.followJob(job)
	}
	return nil
}

func (e *evaluation) followJob(job *batchv1.Job) *Question {
	e.job, e.pod = job, newestPod(e.observation.Pods, job.UID)
	e.status.Attempt.JobUID = job.UID
	e.status.WaitingSince = nil
	e.followSuspension()
	if e.status.Attempt.JobName == "" {
		return nil // no time is left, or the attempt ended with its suspension
	}
	if start := runnerStartTime(e.pod, e.spec.Interactive, e.now); e.status.Attempt.RunnerStartTime == nil && start != nil {
		e.status.Attempt.RunnerStartTime = start
		e.status.StartTime = cmp.Or(e.status.StartTime, start)
	}
	e.recordActiveSince()
	e.readResult()
	e.followCost()
	if e.status.Attempt.RunnerStartTime != nil {
		e.addCostReport()
	}
	e.setCondition(v1alpha1.ConditionRunnerStarted, runnerStarted(&e.status, e.pod, e.obstacle))
	end := decision.FindEndCondition(job)
	if end != nil && endedBeforeDeletion(job, end) {
		// The end of the Pod shows how the runner ended. Kubernetes ends Jobs after their Pods, but a cache receives
		// both separately.
		if e.pod != nil && !decision.HasPodEnded(e.pod) && !e.timer.HasReached(end.LastTransitionTime.Add(maxPodLag)) {
			return nil
		}
		e.closeAttempt(e.requirePush(verdictOfJob(job, e.pod, end, e.attemptResult())))
		return nil
	}
	if e.status.Attempt.StopTime == nil {
		if reason := e.stopReason(); reason != "" {
			e.status.Attempt.StopTime, e.status.StoppedReason = &e.now, reason
		}
	}
	switch {
	case e.status.Attempt.StopTime != nil:
		e.deleteJob(job)
		e.timer.HasReached(stuckTime(&e.status))
	case end == nil:
		return e.followRunner()
	}
	return nil
}

// followRunner keeps the objects that the Job's Pod needs, and lets the Pod run when its workspace is free.
func (e *evaluation) followRunner() *Question {
	if deadline := e.deadline(); !ptr.Equal(deadline, e.job.Spec.ActiveDeadlineSeconds) {
		e.decision.SetDeadline = &JobDeadline{e.job, deadline}
	}
	if question := e.reserveWorkspace().question; question != nil {
		return question
	}
	if e.status.Attempt.JobName != "" {
		e.failStuckStart()
	}
	if e.status.Attempt.JobName == "" { // the run failed
		return nil
	}
	return e.restoreObjects()
}

// endedBeforeDeletion reports whether a Job ended before it was deleted. A runner that fails in the second of the
// deletion may fail because it is terminated.
func endedBeforeDeletion(job *batchv1.Job, end *batchv1.JobCondition) bool {
	if job.DeletionTimestamp.IsZero() {
		return true
	}
	deleted, ended := job.DeletionTimestamp.Time, end.LastTransitionTime.Time
	return ended.Before(deleted) || end.Type == batchv1.JobComplete && ended.Equal(deleted)
}

// runnerStartTime returns when the runner started; nil if it has not. An interactive runner has started when it is
// ready.
func runnerStartTime(pod *corev1.Pod, interactive bool, now metav1.Time) *metav1.Time {
	c := runnerStatus(pod)
	if c == nil {
		return nil
	}
	start := now
	switch {
	case c.State.Terminated != nil:
		start = c.State.Terminated.StartedAt
	case c.State.Running != nil && (!interactive || c.Ready):
		start = c.State.Running.StartedAt
	default:
		return nil
	}
	if start.IsZero() || interactive {
		start = now
	}
	return &start
}

// stopReason returns why the session must stop; empty if it need not.
func (e *evaluation) stopReason() v1alpha1.StopReason {
	if e.spec.Suspend {
		return v1alpha1.StopUser
	}
	if costProblem(&e.observation, &e.status) != nil {
		return v1alpha1.StopBudgetExceeded
	}
	if e.status.Attempt.RunnerStartTime == nil {
		return ""
	}
	if !e.status.Attempt.Limits.ActivityLease { // no activity to measure: see checkActivityFields
		return ""
	}
	idleSince, activity := e.followActivity(), e.observation.Activity
	switch {
	case e.spec.Interactive && e.spec.StopOnRunFinished && activity != nil && activity.FinishedJob == e.status.Attempt.JobName:
		return v1alpha1.StopRunFinished
	case e.isIdleTooLong(idleSince):
		return v1alpha1.StopInactivity
	}
	return ""
}

// stuckTime returns when the Pod of a stopping session is reported as stuck.
func stuckTime(status *v1alpha1.AgenticSessionStatus) time.Time {
	return status.Attempt.StopTime.Add(gracePeriod + stuckPodDelay)
}

// closeLostAttempt closes an attempt whose Job was deleted. Its Pod may be remembered. Only time in which the Pod can
// have run counts, however late the deletion is noticed.
func (e *evaluation) closeLostAttempt() {
	e.pod = newestPod(e.observation.Pods, e.status.Attempt.JobUID)
	e.recordActiveSince()
	e.readResult()
	v := verdict{outcome: v1alpha1.RunFailed, exitCode: runnerExitCode(e.pod), endTime: e.observation.Now}
	v.Reason, v.Message = v1alpha1.ReasonPodLost, "the Job was deleted before its outcome was observed"
	if e.status.Attempt.StopTime != nil {
		v.outcome, v.Reason, v.Message = v1alpha1.RunStopped, string(e.status.StoppedReason), ""
		v.endTime = earlierTime(v.endTime, e.status.Attempt.StopTime.Add(gracePeriod))
		if e.status.StoppedReason == v1alpha1.StopBudgetExceeded {
			v.outcome, v.Message = v1alpha1.RunFailed, "the session reached its maxCostUSD, which was increased since"
			if problem := costProblem(&e.observation, &e.status); problem != nil {
				v.Message = problem.Message
			}
		}
	} else if left, limited := remainingSeconds(&e.observation, &e.status); limited && e.activeStart() != nil {
		v.endTime = earlierTime(v.endTime, e.activeStart().Add(time.Duration(left)*time.Second))
	}
	e.closeAttempt(v)
}

// failStuckStart closes an attempt whose runner cannot start within startupTimeout.
func (e *evaluation) failStuckStart() {
	if e.status.Attempt.RunnerStartTime != nil {
		return
	}
	problem := containerStartProblem(e.pod)
	if problem == nil {
		problem = podSandboxProblem(e.pod)
	}
	limit := startupTimeoutOf(e.spec)
	begin := startupBegin(&e.status, e.job, e.pod)
	if problem == nil || limit == 0 || !e.timer.HasReached(begin.Add(limit)) {
		return
	}
	e.deleteJob(e.job)
	e.failRun(*problem)
}

// startupBegin returns since when the runner could have started. Time in which the Pod waits for a node does not count,
// because it is not the session's fault.
func startupBegin(status *v1alpha1.AgenticSessionStatus, job *batchv1.Job, pod *corev1.Pod) time.Time {
	if c := findPodCondition(pod, corev1.PodScheduled, corev1.ConditionTrue); c != nil && !c.LastTransitionTime.IsZero() {
		return c.LastTransitionTime.Time
	}
	return cmp.Or(status.Attempt.StartTime, &job.CreationTimestamp).Time
}

func earlierTime(a, b time.Time) time.Time {
	return slices.MinFunc([]time.Time{a, b}, time.Time.Compare)
}
