package agenticsession

import (
	"cmp"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

const (
	// startupAllowance is the time that a Job has, beyond the session's remaining time, until its runner starts. While
	// its Pod waits, the operator renews the allowance when half of it has passed. If no operator runs when the runner
	// starts, the runner exceeds the session's time by at most this allowance.
	startupAllowance = time.Hour
	// maxDeadlineSeconds (10 years) fits into a time.Duration.
	maxDeadlineSeconds = 10 * 365 * 24 * 60 * 60

	defaultTimeout        = 4 * time.Hour
	defaultStartupTimeout = 10 * time.Minute
)

// TimeoutOf returns how long a session may run; 0 means no limit. A fraction of a second counts as a second.
func TimeoutOf(spec *v1alpha1.AgenticSessionSpec) time.Duration {
	timeout := decision.DurationOr(spec.Limits.Timeout, defaultTimeout)
	return (timeout + time.Second - 1).Truncate(time.Second)
}

func startupTimeoutOf(spec *v1alpha1.AgenticSessionSpec) time.Duration {
	return decision.DurationOr(spec.Limits.StartupTimeout, defaultStartupTimeout)
}

// JobDeadline is the activeDeadlineSeconds of a Job; nil for none.
type JobDeadline struct {
	Job     *batchv1.Job
	Seconds *int64
}

// remainingSeconds returns how long the session may still run; false if its time is not limited. An open attempt keeps
// the limit that its SessionRunner had when it was created.
func remainingSeconds(o *Observation, status *v1alpha1.AgenticSessionStatus) (seconds int64, limited bool) {
	allowed := int64(TimeoutOf(&o.Session.Spec).Seconds())
	limit := status.Attempt.Limits.Timeout
	if limit == nil && o.Runner != nil {
		limit = o.Runner.Spec.Limits.Timeout
	}
	if limit != nil && limit.Duration.Duration > 0 && (allowed == 0 || int64(limit.Seconds()) < allowed) {
		allowed = max(int64(limit.Seconds()), 1)
	}
	return max(min(allowed, maxDeadlineSeconds)-int64(status.ActiveDuration.Seconds()), 0), allowed != 0
}

// deadlineOf returns the activeDeadlineSeconds that the Job should have: the session's remaining time, from the start of
// its runner; nil for none.
func deadlineOf(f *facts, status *v1alpha1.AgenticSessionStatus, job *batchv1.Job, timer *decision.Timer) *int64 {
	left, limited := remainingSeconds(&f.Observation, status)
	if !limited {
		return nil
	}
	start := cmp.Or(status.Attempt.StartTime, &f.now).Time
	if since := status.Attempt.ActiveSince; since != nil {
		return new(secondsBetween(start, since.Time) + left)
	}
	current, waited := job.Spec.ActiveDeadlineSeconds, secondsBetween(start, f.now.Time)
	allowance := int64(startupAllowance / time.Second)
	if current != nil && *current <= waited+left+allowance &&
		!timer.HasReached(start.Add(time.Duration(*current-left-allowance/2)*time.Second)) {
		return current
	}
	timer.RequeueWithin(startupAllowance / 2)
	return new(waited + left + allowance)
}

func hasRun(pod *corev1.Pod) bool {
	c := runnerStatus(pod)
	return c != nil && (c.State.Running != nil || c.State.Terminated != nil)
}

// secondsBetween is rounded up, so that no attempt gets time that another attempt used.
func secondsBetween(start, end time.Time) int64 {
	return int64(max(end.Sub(start)+time.Second-1, 0) / time.Second)
}
