// Package controller periodically scans all Jobs of the configured namespaces and records the stale Jobs in one JobReport per
// namespace.
//
// It has neither the code nor the permission to change or delete a Job. Package jobreport decides which Jobs are stale, and the
// content of a report. A failed scan is recorded in the namespace's own report, which keeps its previous findings, and does not
// delay other namespaces.
package controller

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/internal/kinds/jobreport"
)

// Options configure the scans.
type Options struct {
	// Namespaces to scan.
	Namespaces []string
	// Interval between scans.
	Interval time.Duration
	// MaxFindings is the maximum number of findings in a report, at most jobreport.MaxFindings.
	MaxFindings int
	// Thresholds are the ages from which Jobs are stale.
	Thresholds jobreport.Thresholds
	// OpenReports enables writing the findings as OpenReports Reports too.
	OpenReports bool
}

// Reconciler scans namespaces.
type Reconciler struct {
	client   client.Client // writes reports
	live     client.Reader // reads from the API server: a cache would hold all Jobs
	recorder events.EventRecorder
	clock    clock.WithTicker
	log      logr.Logger
	options  Options
	results  loggedResults
}

// New returns a Reconciler. The reader must not be a cache.
func New(c client.Client, live client.Reader, recorder events.EventRecorder, log logr.Logger, options Options) *Reconciler {
	return &Reconciler{client: c, live: live, recorder: recorder, clock: clock.RealClock{}, log: log, options: options}
}

// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=list
// The RoleBinding owns the report. An admission plugin of Kubernetes allows owners only to those who may delete the object.
//
// +kubebuilder:rbac:groups=yardmaster.dev,resources=jobreports,verbs=get;create
// +kubebuilder:rbac:groups=yardmaster.dev,resources=jobreports,verbs=delete,resourceNames=jobs
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=rolebindings,verbs=get,resourceNames=yardmaster-jobreport
// +kubebuilder:rbac:groups=yardmaster.dev,resources=jobreports/status,verbs=update
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile scans one namespace and records the result in its JobReport. It returns a scanError if the scan failed or could not
// be recorded.
func (r *Reconciler) Reconcile(ctx context.Context, namespace string) error {
	scan, scanErr := r.scanJobs(ctx, namespace)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the operator stops: a scan that it interrupts is no failure
	}
	var observation jobreport.Observation
	var decision jobreport.Decision
	recordErr := r.retryWhileUnavailable(ctx, scanErr, func(ctx context.Context) (err error) {
		if observation, err = r.observe(ctx, namespace, scan); err != nil {
			return err
		}
		decision = jobreport.Decide(observation)
		err = r.record(ctx, &observation, &decision)
		result := string(decision.Write)
		if err != nil {
			result = writeResultFailed
		}
		writesTotal.WithLabelValues(result).Inc()
		return err
	})
	switch {
	case recordErr != nil:
		if isInaccessible(recordErr) {
			jobsGauge.DeletePartialMatch(prometheus.Labels{"namespace": namespace})
			findingsGauge.DeletePartialMatch(prometheus.Labels{"namespace": namespace})
			oldestGauge.DeletePartialMatch(prometheus.Labels{"namespace": namespace})
		}
		return newScanError(cmp.Or(scanErr, recordErr), recordErr)
	case scanErr == nil:
		recordScanMetrics(namespace, &scan)
	}
	if decision.Export {
		observation.Export = r.act(ctx, observation.Report)
		decision = jobreport.Decide(observation)
		r.recordExport(ctx, &observation, &decision)
	}
	return newScanError(scanErr, nil)
}

// reconcileAndLog reconciles a namespace, and counts and logs a failure. It reports whether the scan succeeded.
func (r *Reconciler) reconcileAndLog(ctx context.Context, namespace string) bool {
	err := r.Reconcile(ctx, namespace)
	if ctx.Err() != nil {
		return false
	}
	failed := (*scanError)(nil)
	if errors.As(err, &failed) {
		scanErrorsTotal.WithLabelValues(namespace, failed.reason).Inc()
	}
	r.logResult(namespace, failed)
	return failed == nil
}

// loggedResults has the reason of the last result by namespace; empty after a successful scan.
type loggedResults struct {
	mu                sync.Mutex
	reasonByNamespace map[string]string
}

// swap records a namespace's result and returns the previous result.
func (l *loggedResults) swap(namespace, reason string) (previous string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reasonByNamespace == nil {
		l.reasonByNamespace = map[string]string{}
	}
	previous = l.reasonByNamespace[namespace]
	l.reasonByNamespace[namespace] = reason
	return previous
}

// logResult logs the result of a scan if it differs from the previous result. A namespace that does not exist would otherwise
// fill the log. A stack trace would not show the cause.
func (r *Reconciler) logResult(namespace string, failed *scanError) {
	reason := ""
	if failed != nil {
		reason = failed.reason
	}
	previous := r.results.swap(namespace, reason)
	switch {
	case reason == previous:
	case failed == nil:
		r.log.Info("Scan succeeded again", "namespace", namespace, "previousReason", previous)
	default:
		r.log.Info("Scan failed; the same failure is not logged again", "namespace", namespace, "reason", reason, "error", failed.Error())
	}
}
