package agenticsession

import (
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

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
		f.setCondition(&s, v1alpha1.ConditionPushed, pushState(repos, &s))
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
	if v.outcome == v1alpha1.RunFailed && budgetProblem(f, &s) == nil && takeRetry(&s, f.spec.Retry, v.Reason) {
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
