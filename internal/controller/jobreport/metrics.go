package jobreport

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/zombie"
)

var (
	jobsGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "yardmaster_jobreport_jobs",
		Help: "Jobs by category, as of the namespace's last scan that succeeded.",
	}, []string{"namespace", "category"})
	findingsGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "yardmaster_jobreport_findings",
		Help: "Jobs that are not healthy by reason, as of the namespace's last scan that succeeded.",
	}, []string{"namespace", "reason"})
	scanDurationSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "yardmaster_jobreport_scan_duration_seconds",
		Help:    "Time to list and judge all Jobs of a namespace.",
		Buckets: []float64{.01, .05, .1, .5, 1, 2.5, 5, 10, 30, 60, 120},
	})
	scanErrorsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "yardmaster_jobreport_scan_errors_total",
		Help: "Scans of a namespace that failed, or could not be stored, by reason.",
	}, []string{"reason"})
	lastSuccessGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "yardmaster_jobreport_last_success_timestamp_seconds",
		Help: "When the namespace's last scan that succeeded began; 0 if none has since this process leads.",
	}, []string{"namespace"})
	intervalGauge = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "yardmaster_jobreport_interval_seconds",
		Help: "Time between scans.",
	})
	writesTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "yardmaster_jobreport_writes_total",
		Help: "What became of reports after scans: changed and heartbeat were written, unchanged was not, failed could not be.",
	}, []string{"result"})
	exportsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "yardmaster_jobreport_openreports_writes_total",
		Help: "What became of OpenReports Reports after scans: changed was written, unchanged was not, failed could not be.",
	}, []string{"result"})
	exportErrorsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "yardmaster_jobreport_openreports_errors_total",
		Help: "OpenReports Reports that could not be written, by reason.",
	}, []string{"reason"})
)

// writeResultFailed is the result of a write besides report's decisions.
const writeResultFailed = "failed"

func init() {
	metrics.Registry.MustRegister(jobsGauge, findingsGauge, scanDurationSeconds, scanErrorsTotal, lastSuccessGauge, intervalGauge, writesTotal, exportsTotal, exportErrorsTotal)
}

// initializeMetrics sets what is known before the first scan, so that one that never succeeds is
// seen to be late.
func initializeMetrics(options Options) {
	intervalGauge.Set(options.Interval.Seconds())
	for _, namespace := range options.Namespaces {
		lastSuccessGauge.WithLabelValues(namespace).Set(0)
	}
}

// recordScanMetrics sets what a scan has found.
func recordScanMetrics(namespace string, summary *v1alpha1.JobSummary, began time.Time) {
	lastSuccessGauge.WithLabelValues(namespace).Set(float64(began.Unix()))
	jobsGauge.WithLabelValues(namespace, string(zombie.CategoryHealthy)).Set(float64(summary.Healthy))
	jobsGauge.WithLabelValues(namespace, string(zombie.CategorySuspicious)).Set(float64(summary.Suspicious))
	jobsGauge.WithLabelValues(namespace, string(zombie.CategoryZombie)).Set(float64(summary.Zombie))
	for _, reason := range zombie.AllReasons() {
		if count := summary.ByReason[string(reason)]; count > 0 {
			findingsGauge.WithLabelValues(namespace, string(reason)).Set(float64(count))
		} else {
			findingsGauge.DeleteLabelValues(namespace, string(reason))
		}
	}
}

// deleteJobCounts drops the counts of a namespace that is gone, or that one is shut out of.
func deleteJobCounts(namespace string) {
	jobsGauge.DeletePartialMatch(prometheus.Labels{"namespace": namespace})
	findingsGauge.DeletePartialMatch(prometheus.Labels{"namespace": namespace})
}
