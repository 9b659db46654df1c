package controller

import (
	"cmp"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/internal/kube/metric"
)

var (
	transitionsTotal = metric.NewCounterVec("yardmaster_session_transitions_total",
		"Number of phase transitions of sessions, by the new phase.", "phase")
	startupSeconds = metric.NewHistogram("yardmaster_session_startup_seconds",
		"Time in seconds from the creation of a session to the first start of its runner.",
		.25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
	attemptSeconds = metric.NewHistogram("yardmaster_session_run_seconds",
		"Time in seconds from the start of an attempt's Job to its end.",
		1, 10, 30, 60, 300, 900, 1800, 3600, 7200, 14400, 43200, 86400, 604800)
	outcomeTotal = metric.NewCounterVec("yardmaster_session_outcome_total",
		"Number of attempts that ended, by reason.", "reason")
	costTotal = metric.NewObjectCounter("yardmaster_session_cost_usd_total",
		"Cost of sessions in US dollars, as reported by their runners.", "runner")
	statusUpdateTotal = metric.NewCounterVec("yardmaster_session_status_update_total",
		"Number of status writes of sessions, by result: stored, conflict, deleted or failed.", "result")
	childrenDeletionSeconds = metric.NewHistogram("yardmaster_session_children_delete_seconds",
		"Time in seconds from the deletion of a session to the deletion of its last Job or Pod.",
		.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
	sessionsByPhase = metric.NewSum("yardmaster_session_phase",
		"Number of sessions, by phase.", "phase")
)

func countStatusUpdate(err error) {
	result := "failed"
	switch {
	case err == nil:
		result = "stored"
	case apierrors.IsConflict(err):
		result = "conflict"
	case apierrors.IsNotFound(err):
		result = "deleted"
	}
	statusUpdateTotal.WithLabelValues(result).Inc()
}

func countTransition(s *v1alpha1.AgenticSession, before *v1alpha1.AgenticSessionStatus, now time.Time) {
	after := &s.Status
	if before.Phase != after.Phase {
		transitionsTotal.WithLabelValues(string(after.Phase)).Inc()
	}
	// The counter exists before the first cost, because a rate does not include the initial value of a counter.
	runner := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: cmp.Or(before.Attempt.Runner, agenticsession.RunnerOf(s))}}
	if added := agenticsession.AddedCost(before, after); added > 0 || before.Attempt.JobUID == "" && after.Attempt.JobUID != "" {
		costTotal.Of(runner).Add(added)
	}
	if before.StartTime == nil && after.StartTime != nil {
		startupSeconds.Observe(now.Sub(s.CreationTimestamp.Time).Seconds())
	}
	if before.Attempt.JobName == "" || after.Attempt.JobName == before.Attempt.JobName || len(after.Attempts) == 0 {
		return
	}
	run := &after.Attempts[len(after.Attempts)-1]
	if run.JobName != before.Attempt.JobName {
		return
	}
	outcomeTotal.WithLabelValues(run.Reason).Inc()
	if run.StartTime != nil && run.CompletionTime != nil {
		attemptSeconds.Observe(run.CompletionTime.Sub(run.StartTime.Time).Seconds())
	}
}

// countPhases also reports phases without sessions, with 0.
func countPhases(sums metric.Sums, list *v1alpha1.AgenticSessionList) {
	for _, phase := range []v1alpha1.SessionPhase{
		v1alpha1.SessionPending, v1alpha1.SessionCreating, v1alpha1.SessionRunning, v1alpha1.SessionStopping,
		v1alpha1.SessionStopped, v1alpha1.SessionCompleted, v1alpha1.SessionFailed,
	} {
		sums.Add(sessionsByPhase, 0, string(phase))
	}
	for i := range list.Items {
		if phase := list.Items[i].Status.Phase; phase != "" {
			sums.Add(sessionsByPhase, 1, string(phase))
		}
	}
}
