package agenticsession

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

var (
	transitionsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "yardmaster_session_transitions_total",
		Help: "Phases that sessions have come to.",
	}, []string{"phase"})
	startupSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "yardmaster_session_startup_seconds",
		Help:    "Time from the making of a session to the first start of its runner.",
		Buckets: []float64{.25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600},
	})
	runSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "yardmaster_session_run_seconds",
		Help:    "Time from the start of an attempt's Job to its end.",
		Buckets: []float64{1, 10, 30, 60, 300, 900, 1800, 3600, 7200, 14400, 43200, 86400, 604800},
	})
	outcomeTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "yardmaster_session_outcome_total",
		Help: "Attempts that ended, by reason.",
	}, []string{"reason"})
	statusUpdateTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "yardmaster_session_status_update_total",
		Help: "Writes of a session's status, by result: stored, conflict, gone or failed.",
	}, []string{"result"})
	phaseDescription = prometheus.NewDesc("yardmaster_session_phase", "Sessions, by phase.", []string{"phase"}, nil)
)

func init() {
	metrics.Registry.MustRegister(transitionsTotal, startupSeconds, runSeconds, outcomeTotal, statusUpdateTotal)
}

func countWrite(err error) {
	result := "failed"
	switch {
	case err == nil:
		result = "stored"
	case apierrors.IsConflict(err):
		result = "conflict"
	case apierrors.IsNotFound(err):
		result = "gone"
	}
	statusUpdateTotal.WithLabelValues(result).Inc()
}

// count counts what has changed between two stored statuses.
func count(s *v1alpha1.AgenticSession, before *v1alpha1.AgenticSessionStatus, now time.Time) {
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
		runSeconds.Observe(run.End.Sub(run.Start.Time).Seconds())
	}
}

// registerPhases has sessions counted when the metrics are scraped.
func registerPhases(reader client.Reader) error {
	if err := metrics.Registry.Register(phaseCollector{reader}); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	return nil
}

// phaseCollector counts, when scraped, the sessions in each phase.
type phaseCollector struct{ reader client.Reader }

// Describe implements prometheus.Collector.
func (phaseCollector) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- phaseDescription
}

// Collect implements prometheus.Collector.
func (c phaseCollector) Collect(collected chan<- prometheus.Metric) {
	var list v1alpha1.AgenticSessionList
	if err := c.reader.List(context.Background(), &list, client.UnsafeDisableDeepCopy); err != nil {
		collected <- prometheus.NewInvalidMetric(phaseDescription, err)
		return
	}
	phases := map[v1alpha1.SessionPhase]int{
		v1alpha1.SessionPending: 0, v1alpha1.SessionCreating: 0, v1alpha1.SessionRunning: 0, v1alpha1.SessionStopping: 0,
		v1alpha1.SessionStopped: 0, v1alpha1.SessionCompleted: 0, v1alpha1.SessionFailed: 0,
	}
	for i := range list.Items {
		if phase := list.Items[i].Status.Phase; phase != "" {
			phases[phase]++
		}
	}
	for phase, number := range phases {
		collected <- prometheus.MustNewConstMetric(phaseDescription, prometheus.GaugeValue, float64(number), string(phase))
	}
}
