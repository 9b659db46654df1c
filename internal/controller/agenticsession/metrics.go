package agenticsession

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kube"
)

var (
	transitionsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "yardmaster_session_transitions_total",
		Help: "Number of phase transitions of sessions, by the new phase.",
	}, []string{"phase"})
	startupSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "yardmaster_session_startup_seconds",
		Help:    "Time in seconds from the creation of a session to the first start of its runner.",
		Buckets: []float64{.25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600},
	})
	attemptSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "yardmaster_session_run_seconds",
		Help:    "Time in seconds from the start of an attempt's Job to its end.",
		Buckets: []float64{1, 10, 30, 60, 300, 900, 1800, 3600, 7200, 14400, 43200, 86400, 604800},
	})
	outcomeTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "yardmaster_session_outcome_total",
		Help: "Number of attempts that ended, by reason.",
	}, []string{"reason"})
	statusUpdateTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "yardmaster_session_status_update_total",
		Help: "Number of status writes of sessions, by result: stored, conflict, deleted or failed.",
	}, []string{"result"})
	childrenDeletionSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "yardmaster_session_children_delete_seconds",
		Help:    "Time in seconds from the deletion of a session to the deletion of its last Job or Pod.",
		Buckets: []float64{.5, 1, 2.5, 5, 10, 30, 60, 120, 300},
	})
	sessionsByPhase = prometheus.NewDesc("yardmaster_session_phase", "Number of sessions, by phase.", []string{"phase"}, nil)
)

func init() {
	metrics.Registry.MustRegister(transitionsTotal, startupSeconds, attemptSeconds, outcomeTotal, statusUpdateTotal, childrenDeletionSeconds)
}

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

// countTransition counts what changed between two stored statuses.
func countTransition(s *v1alpha1.AgenticSession, before *v1alpha1.AgenticSessionStatus, now time.Time) {
	after := &s.Status
	if before.Phase != after.Phase {
		transitionsTotal.WithLabelValues(string(after.Phase)).Inc()
	}
	if before.StartTime == nil && after.StartTime != nil {
		startupSeconds.Observe(now.Sub(s.CreationTimestamp.Time).Seconds())
	}
	if before.Job == "" || after.Job == before.Job || len(after.Runs) == 0 {
		return
	}
	run := &after.Runs[len(after.Runs)-1]
	if run.Job != before.Job {
		return
	}
	outcomeTotal.WithLabelValues(run.Reason).Inc()
	if run.Start != nil && run.End != nil {
		attemptSeconds.Observe(run.End.Sub(run.Start.Time).Seconds())
	}
}

// registerPhaseGauge registers the number of sessions by phase, which is computed at each scrape.
func registerPhaseGauge(cache client.Reader) error {
	err := metrics.Registry.Register(kube.GaugeCollector[*v1alpha1.AgenticSessionList]{
		Reader: cache, NewList: func() *v1alpha1.AgenticSessionList { return &v1alpha1.AgenticSessionList{} }, Sum: countPhases,
		Gauges: []*prometheus.Desc{sessionsByPhase},
	})
	if err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	return nil
}

// countPhases reports every phase, with 0 for a phase without sessions.
func countPhases(sums kube.GaugeSums, list *v1alpha1.AgenticSessionList) {
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
