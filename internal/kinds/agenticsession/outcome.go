package agenticsession

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
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
	gracePeriod = GracePeriodSeconds * time.Second
	// maxPodLag is how long after the end of a Job the end of its Pod may be observed.
	maxPodLag = 10 * time.Second
	// queueLabel is the label with which Kueue manages a Job.
	queueLabel = "kueue.x-k8s.io/queue-name"
)

// outcome is what the Job and the Pod of the open attempt show.
type outcome struct {
	evidence
	// status with what they show. If the attempt has ended, the status contains its record instead of an open attempt.
	status v1alpha1.AgenticSessionStatus
	// isMissing means that the Job of the open attempt was never created.
	isMissing bool
	// hasEnded means that the Job ended because it was deleted.
	hasEnded bool
	// isUncertain means that the Job has ended, and that its Pod may still show how.
	isUncertain bool
	// obstacle is why a suspended Job waits; nil if it does not.
	obstacle *obstacle
	// reports are the states of what the runner reports; nil if it has not started.
	reports []decision.State
	// delete means that the Job is deleted although its attempt has ended.
	delete   bool
	question *Question
	timer    decision.Timer
}

// evidence is what an attempt left.
type evidence struct {
	// job and its Pod; nil if they do not exist, or if the Pod belongs to the time before a suspension.
	job *batchv1.Job
	pod *corev1.Pod
}

func newOutcome(f *facts) outcome {
	o := outcome{status: *f.Session.Status.DeepCopy(), timer: decision.Timer{Now: f.Now}}
	o.status.QueuedSince = nil // unless it waits again
	o.status.ObservedGeneration = f.Session.Generation
	if o.status.Run == 0 {
		o.status.Run, o.status.RerunID = 1, ptr.Deref(f.spec.Rerun, v1alpha1.Rerun{}).ID
	}
	f.setCondition(&o.status, v1alpha1.ConditionSpecAccepted, f.accepted)
	attempt := &o.status.Attempt
	if attempt.JobName == "" {
		return o
	}
	wasCreated := attempt.JobUID != "" || f.CreatedJobs[attempt.JobName] != ""
	switch o.job, o.question = f.findJob(attempt.JobName); {
	case o.question != nil:
	case o.job == nil && !wasCreated:
		o.isMissing = true
	case o.job == nil, attempt.JobUID != "" && attempt.JobUID != o.job.UID: // its Pod may be remembered
		o.job, o.pod = nil, newestPod(f.Pods, attempt.JobUID)
		attempt.ActiveSince = activeSince(f, attempt, o.pod)
		o = o.withResult(f)
		return o.closed(f, lostVerdict(f, &o.status, o.pod))
	default:
		return o.observed(f)
	}
	return o
}

// observed adds what the Job of the open attempt and its Pod show.
func (o outcome) observed(f *facts) outcome {
	attempt := &o.status.Attempt
	attempt.JobUID, o.status.WaitingSince = o.job.UID, nil
	p := newPart(f, attempt, o.job)
	o.pod = p.pod
	if p.previousEnd != nil {
		previous := newestPod(f.Pods, o.job.UID)
		if isMetered(f, previous) && activeStart(attempt, previous) != nil && findCostLimit(&f.Observation, &o.status) != nil {
			// The budget in the Job does not know what the Pod before the suspension spent.
			o.pod, o.delete = previous, true
			return o.closed(f, verdict{outcome: v1alpha1.RunRetried, endTime: *p.previousEnd, Problem: decision.Problem{
				Reason: v1alpha1.ReasonJobSuspended, Message: "Job " + o.job.Name + " was suspended; the next Job has the rest of the budget",
			}})
		}
		if start := activeStart(attempt, previous); start != nil {
			o.status.ActiveDuration.Duration.Duration += time.Duration(secondsBetween(start.Time, *p.previousEnd)) * time.Second
		}
		// The activity of the Pod before the suspension does not count for the next Pod.
		attempt.StartTime, attempt.RunnerStartTime, attempt.ActiveSince, attempt.LastActivityTime = nil, nil, nil, nil
		if f.Activity != nil && !f.Activity.RenewTime.IsZero() {
			attempt.LeaseRenewTime = new(metav1.NewMicroTime(f.Activity.RenewTime))
		}
	}
	attempt.StartTime = cmp.Or(attempt.StartTime, p.start)
	if p.isSuspended {
		if left, limited := remainingSeconds(&f.Observation, &o.status); limited && left == 0 { // its runner would be stopped at once
			o.delete = true
			return o.closed(f, verdict{outcome: v1alpha1.RunFailed, Problem: problemTimeUsedUp, endTime: f.now.Time})
		}
		o.status.QueuedSince = f.queuedSince()
		o.obstacle = &obstacle{Problem: decision.Problem{Reason: v1alpha1.ReasonQueued, Message: "Job " + o.job.Name + " waits in queue " + o.job.Labels[queueLabel]}}
		if o.job.Labels[queueLabel] == "" {
			o.obstacle.Problem = decision.Problem{
				Reason: v1alpha1.ReasonJobSuspended, Message: "another client suspended Job " + o.job.Name + "; set its spec.suspend to false",
			}
		}
	}
	if start := runnerStartTime(o.pod, f.spec.Interactive, f.now); attempt.RunnerStartTime == nil && start != nil {
		attempt.RunnerStartTime = start
		o.status.StartTime = cmp.Or(o.status.StartTime, start)
	}
	attempt.ActiveSince = activeSince(f, attempt, o.pod)
	o = o.withResult(f)
	if cost, isDue := dueCost(f, &o.status, o.evidence, &o.timer); isDue {
		addCost(&o.status, cost, f.now)
	}
	if attempt.RunnerStartTime != nil {
		o.reports = append(o.reports, costReports(f, &o.status, o.evidence)...)
	}
	f.setCondition(&o.status, v1alpha1.ConditionRunnerStarted, runnerStarted(&o.status, o.pod, o.obstacle))
	end := decision.FindEndCondition(o.job)
	switch {
	case end == nil:
	case !endedBeforeDeletion(o.job, end):
		o.hasEnded = true
	case (o.pod == nil || !decision.HasPodEnded(o.pod)) && !o.timer.HasReached(end.LastTransitionTime.Add(maxPodLag)):
		// The end of the Pod shows how the runner ended. Kubernetes ends Jobs after their Pods, but a cache receives
		// both separately, and the Pod may be deleted at once: then only its deletion, which arrives separately too, shows it.
		o.isUncertain = true
	default:
		result := attemptResult(&o.status)
		return o.closed(f, requirePush(f, verdictOfJob(o.job, o.pod, end, result), result))
	}
	return o
}

// withResult adds the result of a runner that ended, with its cost unless a proxy measures that. A malformed result is reported, but
// changes the outcome only if work had to be pushed: see requirePush.
func (o outcome) withResult(f *facts) outcome {
	termination := runnerTermination(o.pod)
	if termination == nil || strings.TrimSpace(termination.Message) == "" {
		return o
	}
	result, err := ParseResult(termination.Message)
	if err != nil {
		o.reports = append(o.reports, decision.False(
			v1alpha1.ReasonResultMalformed, fmt.Sprintf("attempt %d of run %d: %s", o.status.Attempt.Attempt, o.status.Run, err)))
		return o
	}
	o.reports = append(o.reports, decision.True(v1alpha1.ReasonReporting, ""))
	result.Run, result.Attempt = o.status.Run, o.status.Attempt.Attempt
	if previous := o.status.Result; previous != nil {
		result.SDKSessionID = cmp.Or(result.SDKSessionID, previous.SDKSessionID)
	}
	o.status.Result = &result.SessionResult
	known := o.status.Attempt.CostUSD
	if cost := result.CostUSD; cost != nil && (known == nil || microsOf(cost) > microsOf(known)) && !isMetered(f, o.pod) {
		addCost(&o.status, *cost, f.now)
	}
	return o
}

// closed returns the outcome after the open attempt ended with this verdict.
func (o outcome) closed(f *facts, v verdict) outcome {
	status, reports := closeAttempt(f, &o.status, o.evidence, v)
	o.status, o.reports = status, append(o.reports, reports...)
	return o
}

// part is the time of an attempt without a suspension. A queue or another client may suspend and resume a Job, which loses
// its Pod then, and gets another Pod in the same attempt. Time without a Pod does not count.
type part struct {
	// isSuspended means that the Job is suspended, and has no Pods.
	isSuspended bool
	// previousEnd is when the Pod before a suspension ended, or the latest time at which it can have ended; nil if the
	// attempt already counts the time of this Pod.
	previousEnd *time.Time
	// start of the part; nil if it has not started.
	start *metav1.Time
	// pod of the part; nil if it does not exist.
	pod *corev1.Pod
}

func newPart(f *facts, attempt *v1alpha1.SessionAttempt, job *batchv1.Job) part {
	p := part{pod: newestPod(f.Pods, job.UID)}
	var change *batchv1.JobCondition // whether and since when the Job is suspended; nil if it never was
	if i := slices.IndexFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool { return c.Type == batchv1.JobSuspended }); i >= 0 {
		change = &job.Status.Conditions[i]
	}
	isOfPrevious := change != nil && isPodOfPreviousPart(p.pod, f.DeletedPod, change)
	end := f.Now
	switch termination := runnerTermination(p.pod); {
	case change == nil:
	case termination != nil && isOfPrevious && !termination.FinishedAt.IsZero():
		end = earlierTime(end, termination.FinishedAt.Time)
	case change.Status == corev1.ConditionTrue:
		end = earlierTime(end, change.LastTransitionTime.Add(gracePeriod))
	default: // the suspension was not observed
		end = earlierTime(end, change.LastTransitionTime.Time)
	}
	started := job.Status.StartTime
	switch {
	case ptr.Deref(job.Spec.Suspend, false):
		hasStarted := attempt.StartTime != nil || started != nil
		hasNoPods := job.Status.Active == 0 && ptr.Deref(job.Status.Terminating, 0) == 0
		if p.isSuspended = hasNoPods && (!hasStarted || change != nil && change.Status == corev1.ConditionTrue); p.isSuspended {
			p.previousEnd, p.pod = &end, nil
		}
	case change == nil: // the Job was never suspended
		p.start = started
	default:
		if attempt.StartTime != nil && (started == nil || started.After(attempt.StartTime.Time)) {
			p.previousEnd = &end
		}
		if isOfPrevious {
			p.pod = nil
		}
		if change.Status != corev1.ConditionTrue { // otherwise the Job still has the start time of before its suspension
			p.start = started
		}
	}
	return p
}

// isPodOfPreviousPart reports whether the Pod was deleted because its Job was suspended. It may still be in the cache, or
// remembered, after the Job was resumed.
func isPodOfPreviousPart(pod *corev1.Pod, remembered types.UID, change *batchv1.JobCondition) bool {
	switch {
	case pod == nil, pod.DeletionTimestamp == nil && pod.UID != remembered:
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

// activeSince returns when the container of an attempt's runner started, by the clock of its node; nil if it has not.
func activeSince(f *facts, attempt *v1alpha1.SessionAttempt, pod *corev1.Pod) *metav1.Time {
	c, earliest := runnerStatus(pod), attempt.StartTime
	if attempt.ActiveSince != nil || c == nil || earliest == nil {
		return attempt.ActiveSince
	}
	start := *earliest // if the container's start is not known
	switch {
	case c.State.Running != nil && !c.State.Running.StartedAt.IsZero():
		start = c.State.Running.StartedAt
	case c.State.Terminated != nil && !c.State.Terminated.StartedAt.IsZero():
		start = c.State.Terminated.StartedAt
	case c.State.Running == nil && c.State.Terminated == nil:
		return nil
	}
	return new(metav1.NewTime(laterTime(earlierTime(start.Time, f.now.Time), earliest.Time)))
}

// activeStart returns since when the time of an attempt counts; nil if its runner did not run. A Pod that was not
// observed may have run since its Job started, or, if the session was stopped before the runner was observed, since the
// stop.
func activeStart(attempt *v1alpha1.SessionAttempt, pod *corev1.Pod) *metav1.Time {
	switch {
	case attempt.ActiveSince != nil:
		return attempt.ActiveSince
	case pod != nil || attempt.StartTime == nil:
		return nil
	case attempt.StopTime != nil:
		return attempt.StopTime
	}
	return attempt.StartTime
}

func earlierTime(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func laterTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

const (
	maxRecordedRuns    = 10
	maxRunMessageBytes = 256
	// maxRetries is how often a failed run is retried at most, as in the CustomResourceDefinition.
	maxRetries = 5
	// maxDisruptions is how often a disrupted run is retried.
	maxDisruptions = 5
)

type verdict struct {
	outcome v1alpha1.RunOutcome
	decision.Problem

	// exitCode of the runner; nil if not known.
	exitCode *int32
	endTime  time.Time
	// lastMessage is what the agent or git said last; empty if it is not known.
	lastMessage string
}

var problemTimeUsedUp = decision.Problem{Reason: v1alpha1.ReasonDeadlineExceeded, Message: "the session used all of its time; increase timeout to run it again"}

// verdictOfJob returns the verdict of a Job that ended. Exit codes of sidecars do not count, nor does the runner's exit
// code if the runner was terminated.
func verdictOfJob(job *batchv1.Job, pod *corev1.Pod, end *batchv1.JobCondition, result *v1alpha1.SessionResult) verdict {
	v := verdict{outcome: v1alpha1.RunFailed, exitCode: runnerExitCode(pod), endTime: end.LastTransitionTime.Time, lastMessage: lastMessage(pod, result)}
	if job.Status.CompletionTime != nil {
		v.endTime = job.Status.CompletionTime.Time
	}
	termination, disruption, check := runnerTermination(pod), podDisruption(pod), checkProblem(pod)
	switch {
	case end.Type == batchv1.JobComplete:
		v.outcome, v.Reason = v1alpha1.RunCompleted, v1alpha1.ReasonCompleted
	case end.Reason == batchv1.JobReasonDeadlineExceeded && pod != nil && !hasRun(pod):
		v.Reason, v.Message = v1alpha1.ReasonDeadlineExceeded, "the Pod waited for a node until the deadline of its Job, which no operator prolonged; run the session again"
	case end.Reason == batchv1.JobReasonDeadlineExceeded:
		v.Problem = problemTimeUsedUp
	case disruption != nil:
		v.Problem = *disruption
	case check != nil:
		v.Problem = *check
	case termination == nil:
		v.Reason, v.Message = v1alpha1.ReasonPodLost, decision.FormatReason(end.Reason, end.Message)
	case termination.ExitCode == 0:
		v.outcome, v.Reason = v1alpha1.RunCompleted, v1alpha1.ReasonCompleted
	case termination.Reason == v1alpha1.ReasonOOMKilled:
		v.Reason, v.Message = v1alpha1.ReasonOOMKilled, "the runner exceeded its memory limit"
	default:
		v.Reason, v.Message = v1alpha1.ReasonExitedWithError, fmt.Sprintf("the runner exited with code %d", termination.ExitCode)
	}
	return v
}

// lastMessage returns what the agent or git said last, in the result of the runner or instead of a result; empty if it is not known.
func lastMessage(pod *corev1.Pod, result *v1alpha1.SessionResult) string {
	termination := runnerTermination(pod)
	switch {
	case termination == nil:
		return ""
	case result != nil:
		return strings.TrimSpace(result.Summary)
	}
	return strings.TrimSpace(termination.Message)
}

// lostVerdict returns the verdict of an attempt whose Job was deleted. Only time in which the Pod can have run counts, however late
// the deletion is noticed.
func lostVerdict(f *facts, status *v1alpha1.AgenticSessionStatus, pod *corev1.Pod) verdict {
	v := verdict{outcome: v1alpha1.RunFailed, exitCode: runnerExitCode(pod), endTime: f.Now, lastMessage: lastMessage(pod, attemptResult(status))}
	v.Reason, v.Message = v1alpha1.ReasonPodLost, "the Job was deleted before its outcome was observed"
	left, limited := remainingSeconds(&f.Observation, status)
	switch start := activeStart(&status.Attempt, pod); {
	case status.Attempt.StopTime != nil:
		v.outcome, v.Reason, v.Message = v1alpha1.RunStopped, string(status.StoppedReason), ""
		v.endTime = earlierTime(v.endTime, status.Attempt.StopTime.Add(gracePeriod))
		if status.StoppedReason == v1alpha1.StopBudgetExceeded {
			v.outcome, v.Message = v1alpha1.RunFailed, "the session reached its maxCostUSD, which was increased since"
			if problem := costProblem(&f.Observation, status); problem != nil {
				v.Message = problem.Message
			}
		}
	case limited && start != nil:
		v.endTime = earlierTime(v.endTime, start.Add(time.Duration(left)*time.Second))
	}
	return v
}

// attemptResult returns the result that the runner of the open attempt left; nil without a valid result.
func attemptResult(status *v1alpha1.AgenticSessionStatus) *v1alpha1.SessionResult {
	result := status.Result
	if result == nil || result.Run != status.Run || result.Attempt != status.Attempt.Attempt {
		return nil
	}
	return result
}

// closeAttempt returns the status with the record of how the open attempt ended, and with whether its run is retried, and what is
// reported about its cost. From here on, its Job does not matter.
func closeAttempt(f *facts, before *v1alpha1.AgenticSessionStatus, left evidence, v verdict) (v1alpha1.AgenticSessionStatus, []decision.State) {
	s := *before.DeepCopy()
	end := metav1.NewTime(v.endTime.Truncate(time.Second)) // the API server's precision
	if v.endTime.IsZero() {
		v.endTime, end = f.now.Time, f.now
	}
	if repos := pushedRepos(f.spec, false); len(repos) > 0 && (s.Attempt.RunnerStartTime != nil || hasRun(left.pod)) {
		state := arrivalOf(repos, attemptResult(&s))
		if claim := s.Workspace.ClaimRef.Name; claim != "" && state.Status != metav1.ConditionTrue {
			state.Message += fmt.Sprintf("; the workspace, PersistentVolumeClaim %s, is kept", claim)
		}
		f.setCondition(&s, v1alpha1.ConditionPushed, state)
	}
	cost, reports := finalCost(f, &s, left)
	if cost != "" {
		addCost(&s, cost, f.now)
	}
	if start := activeStart(&s.Attempt, left.pod); start != nil {
		runnerEnd := v.endTime // the sidecars, which push and archive, end later
		if termination := runnerTermination(left.pod); termination != nil && !termination.FinishedAt.IsZero() {
			runnerEnd = earlierTime(runnerEnd, termination.FinishedAt.Time)
		}
		s.ActiveDuration.Duration.Duration += time.Duration(secondsBetween(start.Time, runnerEnd)) * time.Second
	}
	if problem := costProblem(&f.Observation, &s); v.Reason == v1alpha1.ReasonExitedWithError && isMetered(f, left.pod) && problem != nil {
		v.Problem = *problem // the proxy refused the agent's requests
	}
	if v.outcome == v1alpha1.RunFailed && v.lastMessage != "" {
		separator := "; the last message of the runner: "
		if v.Reason == v1alpha1.ReasonExitedWithError {
			separator = ": "
		}
		v.Message += separator + v.lastMessage
	}
	if exhausted, _ := checkBudget(f, &s); v.outcome == v1alpha1.RunFailed && exhausted == nil && takeRetry(&s, f.spec.Retry, v.Reason) {
		v.outcome = v1alpha1.RunRetried
	}
	s.Attempts = append(s.Attempts, v1alpha1.SessionAttempt{
		JobAttempt: v1alpha1.JobAttempt{
			AttemptNumber: v1alpha1.AttemptNumber{Run: s.Run, Attempt: AttemptNumber(&s)}, JobName: s.Attempt.JobName,
			Times: v1alpha1.Times{StartTime: s.Attempt.StartTime, CompletionTime: &end}, ExitCode: v.exitCode,
			Explanation: v1alpha1.Explanation{Reason: v.Reason, Message: decision.TruncateMessage(v.Message, maxRunMessageBytes)},
		},
		InputsRef: s.Attempt.InputsRef, Outcome: v.outcome, CostUSD: s.Attempt.CostUSD,
	})
	s.Attempts = slices.Delete(s.Attempts, 0, max(len(s.Attempts)-maxRecordedRuns, 0))
	s.Attempt, s.WaitingSince = v1alpha1.SessionAttempt{}, nil
	if v.outcome != v1alpha1.RunStopped {
		s.StoppedReason = ""
	}
	if v.outcome == v1alpha1.RunCompleted || v.outcome == v1alpha1.RunFailed {
		s.CompletionTime = &end
	}
	return s, reports
}

// takeRetry counts and allows a retry after a failure with this reason, if a retry is left.
func takeRetry(status *v1alpha1.AgenticSessionStatus, retry *v1alpha1.SessionRetry, reason string) bool {
	if retry == nil {
		return false
	}
	count, limit := &status.Retries, min(ptr.Deref(retry.Limit, 0), maxRetries)
	switch reason {
	case v1alpha1.ReasonExitedWithError, v1alpha1.ReasonOOMKilled:
	case v1alpha1.ReasonEvicted, v1alpha1.ReasonPodLost, v1alpha1.ReasonPodDeleted:
		count, limit = &status.Disruptions, maxDisruptions
		if !retry.OnDisruption {
			return false
		}
	default:
		return false
	}
	if *count >= limit {
		return false
	}
	*count++
	return true
}
