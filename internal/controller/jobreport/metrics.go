package jobreport

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/metric"
	"github.com/yardmaster/yardmaster/internal/report"
	"github.com/yardmaster/yardmaster/internal/zombie"
)

var (
	jobsGauge = metric.NewGaugeVec("yardmaster_jobreport_jobs",
		"Number of Jobs by category in the last successful scan of the namespace.", "namespace", "category")
	findingsGauge = metric.NewGaugeVec("yardmaster_jobreport_findings",
		"Number of Jobs that are not healthy, by reason, in the last successful scan of the namespace.", "namespace", "reason")
	scanDurationSeconds = metric.NewHistogram("yardmaster_jobreport_scan_duration_seconds",
		"Time to list and classify all Jobs of a namespace.",
		.01, .05, .1, .5, 1, 2.5, 5, 10, 30, 60, 120)
	scanErrorsTotal = metric.NewCounterVec("yardmaster_jobreport_scan_errors_total",
		"Number of scans that failed or could not be recorded, by reason.", "reason")
	lastSuccessGauge = metric.NewGaugeVec("yardmaster_jobreport_last_success_timestamp_seconds",
		"Start time of the last successful scan of the namespace; 0 if none has succeeded since this process became the leader.", "namespace")
	intervalGauge = metric.NewGauge("yardmaster_jobreport_interval_seconds",
		"Configured time between scans.")
	writesTotal = metric.NewCounterVec("yardmaster_jobreport_writes_total",
		"Number of attempts to record a scan, by result: changed and heartbeat were written, unchanged needed no write, failed could not be written.", "result")
	exportsTotal = metric.NewCounterVec("yardmaster_jobreport_openreports_writes_total",
		"Number of attempts to write an OpenReports Report, by result: changed was written, unchanged needed no write, failed could not be written.", "result")
	exportErrorsTotal = metric.NewCounterVec("yardmaster_jobreport_openreports_errors_total",
		"Number of OpenReports Reports that could not be written, by reason.", "reason")
)

// writeResultFailed is the result of a failed write; the others are report.WriteReasons.
const writeResultFailed = "failed"

// initializeMetrics runs before the first scan, so that a scan that never succeeds is visible as
// overdue.
func initializeMetrics(options Options) {
	intervalGauge.Set(options.Interval.Seconds())
	for _, namespace := range options.Namespaces {
		lastSuccessGauge.WithLabelValues(namespace).Set(0)
	}
}

func countWrite(decision *report.Decision, err error) {
	result := string(decision.Write)
	if err != nil {
		result = writeResultFailed
	}
	writesTotal.WithLabelValues(result).Inc()
}

func recordScanMetrics(stored *v1alpha1.JobReport, scan *report.Scan) {
	namespace, summary := stored.Namespace, &stored.Status.Summary
	lastSuccessGauge.WithLabelValues(namespace).Set(float64(scan.StartTime.Unix()))
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

// deleteJobCounts deletes the counts of a namespace that cannot be scanned any more.
func deleteJobCounts(namespace string) {
	jobsGauge.DeletePartialMatch(prometheus.Labels{"namespace": namespace})
	findingsGauge.DeletePartialMatch(prometheus.Labels{"namespace": namespace})
}
