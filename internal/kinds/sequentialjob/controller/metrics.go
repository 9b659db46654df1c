package controller

import (
	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kube/metric"
)

var (
	transitionSeconds = metric.NewHistogram("yardmaster_sequentialjob_step_transition_seconds",
		"Time in seconds from observing the end of a step's Job to the creation of the next step's Job.",
		.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30)
	stepsTotal = metric.NewCounterVec("yardmaster_sequentialjob_steps_total",
		"Number of steps that ended, by result: succeeded, failed, skipped, or retried for an attempt that failed and is followed by another one.", "result")
	archivesTotal = metric.NewCounterVec("yardmaster_sequentialjob_archives_total",
		"Number of runs whose logs were to be archived, by result: archived or failed.", "result")
	conflictsTotal = metric.NewCounter("yardmaster_sequentialjob_conflicts_total",
		"Number of status writes that failed because the SequentialJob had changed. Each is retried.")
	eventsOmittedTotal = metric.NewCounter("yardmaster_sequentialjob_events_omitted_total",
		"Number of JobStarted, JobCompleted, Completed and LogsArchived events omitted because of the rate limit.")
	activeGauge = metric.NewSum("yardmaster_sequentialjob_active",
		"Number of SequentialJobs with an active step.")
)

func countActive(sums metric.Sums, list *v1alpha1.SequentialJobList) {
	sums.Add(activeGauge, 0)
	for i := range list.Items {
		if list.Items[i].Status.State.Active > 0 {
			sums.Add(activeGauge, 1)
		}
	}
}
