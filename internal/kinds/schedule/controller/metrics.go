package controller

import (
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/schedule"
	"github.com/yardmaster/yardmaster/internal/kube/metric"
)

var (
	startedTotal = metric.NewObjectCounter("yardmaster_schedule_runs_started_total",
		"Number of runs that a Schedule started.", "schedule")
	finishedTotal = metric.NewObjectCounter("yardmaster_schedule_runs_finished_total",
		"Number of runs that ended, by result: succeeded or failed.", "schedule", "result")
	missedTotal = metric.NewObjectCounter("yardmaster_schedule_missed_total",
		"Number of times that a Schedule missed, by reason.", "schedule", "reason")
	startDelay = metric.NewHistogram("yardmaster_schedule_start_delay_seconds",
		"Time in seconds from when a run was due, jitter not included, to its creation.",
		.1, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
	schedulesGauge = metric.NewSum("yardmaster_schedules",
		"Number of Schedules by state: scheduled, suspended or stalled.", "state")
)

// startCounters starts the counters of a Schedule's failures at 0: Prometheus does not see an increase from nothing to 1, so that an alert
// would miss the first failure after each start of the operator.
func startCounters(s *v1alpha1.Schedule) {
	missed := []string{v1alpha1.MissedTooLate, v1alpha1.MissedSuperseded, v1alpha1.MissedRefused}
	if s.Spec.When != "" {
		missed = append(missed, v1alpha1.MissedWhenFailed)
	}
	if s.Spec.Message != nil {
		missed = append(missed, v1alpha1.MissedOutcomeUnknown)
	} else {
		finishedTotal.Of(s, "failed")
	}
	for _, reason := range missed {
		missedTotal.Of(s, reason)
	}
}

// count updates the counters after a decision is stored.
func count(s *v1alpha1.Schedule, decision *schedule.Decision) {
	if decision.Started != nil {
		startedTotal.Of(s).Inc()
	}
	for reason, missed := range decision.Missed {
		missedTotal.Of(s, reason).Add(float64(missed))
	}
	for result, finished := range decision.Finished {
		finishedTotal.Of(s, result).Add(float64(finished))
	}
}

const (
	stateScheduled = "scheduled"
	stateSuspended = "suspended"
	stateStalled   = "stalled"
)

func sumSchedules(sums metric.Sums, list *v1alpha1.ScheduleList) {
	for _, state := range []string{stateScheduled, stateSuspended, stateStalled} {
		sums.Add(schedulesGauge, 0, state)
	}
	for i := range list.Items {
		s, state := &list.Items[i], stateScheduled
		switch {
		case meta.IsStatusConditionTrue(s.Status.Conditions, v1alpha1.ConditionStalled):
			state = stateStalled
		case s.Spec.Suspend:
			state = stateSuspended
		}
		sums.Add(schedulesGauge, 1, state)
	}
}
