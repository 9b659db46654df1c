package controller

import (
	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/jobreport"
	"github.com/yardmaster/yardmaster/internal/kube/metric"
)

var (
	jobsGauge = metric.NewGaugeVec("yardmaster_jobreport_jobs",
		"Number of Jobs by category in the last successful scan of the namespace.", "namespace", "category")
	findingsGauge = metric.NewGaugeVec("yardmaster_jobreport_findings",
		"Number of Jobs that are not healthy, by category and reason, in the last successful scan of the namespace.", "namespace", "category", "reason")
	oldestGauge = metric.NewGaugeVec("yardmaster_jobreport_oldest_finding_timestamp_seconds",
		"Time from which the oldest Job that is not healthy counts its age, by category and reason, in the last successful scan of the namespace.", "namespace", "category", "reason")
	scanDurationSeconds = metric.NewHistogram("yardmaster_jobreport_scan_duration_seconds",
		"Time to list and classify all Jobs of a namespace.",
		.01, .05, .1, .5, 1, 2.5, 5, 10, 30, 60, 120)
	scanErrorsTotal = metric.NewCounterVec("yardmaster_jobreport_scan_errors_total",
		"Number of scans that failed or could not be recorded, by reason.", "namespace", "reason")
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

// writeResultFailed is the result of a failed write; the others are jobreport.WriteReasons.
const writeResultFailed = "failed"

// scanFailureReasons are the values of the label reason of scanErrorsTotal.
var scanFailureReasons = []string{
	v1alpha1.ReasonForbidden, v1alpha1.ReasonNamespaceNotFound, v1alpha1.ReasonNamespaceTerminating,
	v1alpha1.ReasonTimeout, v1alpha1.ReasonExpired, v1alpha1.ReasonPartialList, v1alpha1.ReasonListFailed,
}

// exportFailureReasons are the values of the label reason of exportErrorsTotal.
var exportFailureReasons = []string{
	v1alpha1.ReasonCRDMissing, v1alpha1.ReasonForbidden, v1alpha1.ReasonNameTaken, v1alpha1.ReasonTimeout, v1alpha1.ReasonWriteFailed,
}

// initializeMetrics runs before the first scan, so that a scan that never succeeds is visible as overdue. Counters start at 0:
// Prometheus does not see an increase from nothing to 1.
func initializeMetrics(options Options) {
	intervalGauge.Set(options.Interval.Seconds())
	for _, namespace := range options.Namespaces {
		lastSuccessGauge.WithLabelValues(namespace).Set(0)
		for _, reason := range scanFailureReasons {
			scanErrorsTotal.WithLabelValues(namespace, reason)
		}
	}
	for _, result := range []string{string(jobreport.WriteChanged), string(jobreport.WriteHeartbeat), string(jobreport.WriteUnchanged), writeResultFailed} {
		writesTotal.WithLabelValues(result)
	}
	if options.OpenReports {
		for _, result := range []string{string(jobreport.WriteChanged), string(jobreport.WriteUnchanged), writeResultFailed} {
			exportsTotal.WithLabelValues(result)
		}
		for _, reason := range exportFailureReasons {
			exportErrorsTotal.WithLabelValues(reason)
		}
	}
}

func recordScanMetrics(namespace string, scan *jobreport.Scan) {
	lastSuccessGauge.WithLabelValues(namespace).Set(float64(scan.StartTime.Unix()))
	for _, category := range jobreport.AllCategories() {
		jobsGauge.WithLabelValues(namespace, string(category)).Set(float64(scan.Jobs.Count(category)))
	}
	for _, category := range []jobreport.Category{jobreport.CategorySuspicious, jobreport.CategoryZombie} {
		for _, reason := range jobreport.AllReasons() {
			labels := []string{namespace, string(category), string(reason)}
			count, oldest := scan.Jobs.Findings(category, reason)
			if count > 0 {
				findingsGauge.WithLabelValues(labels...).Set(float64(count))
			} else {
				findingsGauge.DeleteLabelValues(labels...)
			}
			if !oldest.IsZero() {
				oldestGauge.WithLabelValues(labels...).Set(float64(oldest.Unix()))
			} else {
				oldestGauge.DeleteLabelValues(labels...)
			}
		}
	}
}
