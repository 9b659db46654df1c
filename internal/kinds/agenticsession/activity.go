package agenticsession

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

const (
	// activityPrecision limits how often lastActivityTime is written.
	activityPrecision = time.Minute
	// activityChecks is how often activity is recorded within inactivityTimeout, within the limit of activityPrecision.
	// After a restart of the operator, only the time since the last record counts again.
	activityChecks = 10
)

// Activity is the report of a runner in its Lease.
type Activity struct {
	// RenewTime is the time of the last activity, as the runner wrote it; zero if it wrote none. It may be any time.
	RenewTime time.Time
	// ObservedTime is when this process first observed RenewTime.
	ObservedTime time.Time
	// CreationTime is when the Lease was created.
	CreationTime time.Time
	// FinishedJob is the Job whose runner reported that its run is finished.
	FinishedJob string
	// Cost that runners reported.
	Cost CostReport
}

// followActivity records the runner's activity, and returns since when it is idle; zero if the runner has not renewed
// its Lease, or the Lease does not exist.
func (e *evaluation) followActivity() (idleSince time.Time) {
	activity, s := e.observation.Activity, &e.status
	if activity == nil {
		e.addActivityReport()
		return time.Time{}
	}
	active := time.Time{}
	if s.Attempt.LastActivityTime != nil {
		active = s.Attempt.LastActivityTime.Time
	}
	isRenewed := !activity.RenewTime.IsZero() && (s.Attempt.LeaseRenewTime == nil || !s.Attempt.LeaseRenewTime.Time.Equal(activity.RenewTime))
	if isRenewed {
		active = laterTime(laterTime(active, s.Attempt.RunnerStartTime.Time), earlierTime(activity.ObservedTime, e.observation.Now))
	}
	if last := s.Attempt.LastActivityTime; isRenewed && (last == nil || active.Sub(last.Time) >= activityPrecision) {
		s.Attempt.LastActivityTime = new(metav1.NewTime(active.Truncate(time.Second)))
		s.Attempt.LeaseRenewTime = new(metav1.NewMicroTime(activity.RenewTime))
	}
	e.addActivityReport()
	if active.IsZero() {
		return time.Time{}
	}
	return laterTime(active, activity.CreationTime) // without its Lease the runner could report nothing
}

// addActivityReport reports a runner whose activity is not known: it is not stopped for inactivity.
func (e *evaluation) addActivityReport() {
	if decision.DurationOr(e.spec.Limits.InactivityTimeout, 0) == 0 {
		return
	}
	state := decision.True(v1alpha1.ReasonReporting, "")
	if e.status.Attempt.LastActivityTime == nil {
		state = decision.State{
			Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonActivityUnknown,
			Message: "the runner has not renewed Lease " + LeaseName(e.observation.Session.Name) +
				" since it started, so inactivityTimeout does not stop it; it must renew it at its start",
		}
	}
	e.reports = append(e.reports, state)
}

func (e *evaluation) isIdleTooLong(idleSince time.Time) bool {
	limit := decision.DurationOr(e.spec.Limits.InactivityTimeout, 0)
	if limit == 0 {
		return false
	}
	if idleSince.IsZero() { // renewals alone cause no reconciliation
		e.timer.RequeueWithin(min(limit, activityPrecision))
		return false
	}
	e.timer.RequeueWithin(max(limit/activityChecks, activityPrecision))
	return e.timer.HasReached(idleSince.Add(limit))
}

func laterTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
