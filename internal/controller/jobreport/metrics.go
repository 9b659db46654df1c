package jobreport

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/zombie"
)

var (
	jobs = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "yardmaster_jobreport_jobs",
		Help: "Jobs by category, as of the namespace's last scan that succeeded.",
	}, []string{"namespace", "category"})
	findings = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "yardmaster_jobreport_findings",
		Help: "Jobs that are not healthy by reason, as of the namespace's last scan that succeeded.",
	}, []string{"namespace", "reason"})
	scanSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "yardmaster_jobreport_scan_duration_seconds",
		Help:    "Time to list and judge all Jobs of a namespace.",
		Buckets: []float64{.01, .05, .1, .5, 1, 2.5, 5, 10, 30, 60, 120},
	})
	scanErrors = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "yardmaster_jobreport_scan_errors_total",
		Help: "Scans of a namespace that failed, or could not be stored, by reason.",
	}, []string{"reason"})
	lastSuccess = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "yardmaster_jobreport_last_success_timestamp_seconds",
		Help: "When the namespace's last scan that succeeded began; 0 if none has since this process leads.",
	}, []string{"namespace"})
	interval = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "yardmaster_jobreport_interval_seconds",
		Help: "Time between scans.",
	})
	writes = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "yardmaster_jobreport_writes_total",
		Help: "What became of reports after scans: changed and heartbeat were written, unchanged was not, failed could not be.",
	}, []string{"result"})
	mirrors = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "yardmaster_jobreport_openreports_writes_total",
		Help: "What became of OpenReports Reports after scans: changed was written, unchanged was not, failed could not be.",
	}, []string{"result"})
	mirrorErrors = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "yardmaster_jobreport_openreports_errors_total",
		Help: "OpenReports Reports that could not be written, by reason.",
	}, []string{"reason"})
)

// writeFailed is the result of a write besides report's decisions.
const writeFailed = "failed"

func init() {
	metrics.Registry.MustRegister(jobs, findings, scanSeconds, scanErrors, lastSuccess, interval, writes, mirrors, mirrorErrors)
}

// announce sets what is known before the first scan, so that one that never succeeds is
// seen to be late.
func announce(options Options) {
	interval.Set(options.Interval.Seconds())
	for _, namespace := range options.Namespaces {
		lastSuccess.WithLabelValues(namespace).Set(0)
	}
}

// observe sets what a scan has found.
func observe(namespace string, summary *v1alpha1.JobSummary, began time.Time) {
	lastSuccess.WithLabelValues(namespace).Set(float64(began.Unix()))
	jobs.WithLabelValues(namespace, string(zombie.CategoryHealthy)).Set(float64(summary.Healthy))
	jobs.WithLabelValues(namespace, string(zombie.CategorySuspicious)).Set(float64(summary.Suspicious))
	jobs.WithLabelValues(namespace, string(zombie.CategoryZombie)).Set(float64(summary.Zombie))
	for _, reason := range zombie.AllReasons() {
		if count := summary.ByReason[string(reason)]; count > 0 {
			findings.WithLabelValues(namespace, string(reason)).Set(float64(count))
		} else {
			findings.DeleteLabelValues(namespace, string(reason))
		}
	}
}

// forget drops the counts of a namespace that is gone, or that one is shut out of.
func forget(namespace string) {
	jobs.DeletePartialMatch(prometheus.Labels{"namespace": namespace})
	findings.DeletePartialMatch(prometheus.Labels{"namespace": namespace})
}
