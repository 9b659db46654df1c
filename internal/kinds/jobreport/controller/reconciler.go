package controller

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"
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
	// MaxFindings is the maximum number of findings in a report, at most report.MaxFindings.
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
// +kubebuilder:rbac:groups=yardmaster.dev,resources=jobreports,verbs=get;create
// +kubebuilder:rbac:groups=yardmaster.dev,resources=jobreports/status,verbs=update
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile scans one namespace and records the result in its JobReport. It returns a scanError
// if the scan failed or could not be recorded.
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
		countWrite(&decision, err)
		return err
	})
	switch {
	case recordErr != nil:
		if isInaccessible(recordErr) {
			deleteJobCounts(namespace)
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

// reconcileAndLog reconciles a namespace. The error has no caller to return to.
func (r *Reconciler) reconcileAndLog(ctx context.Context, namespace string) {
	err := r.Reconcile(ctx, namespace)
	if ctx.Err() != nil {
		return
	}
	failed := (*scanError)(nil)
	if errors.As(err, &failed) {
		scanErrorsTotal.WithLabelValues(namespace, failed.reason).Inc()
	}
	r.logResult(namespace, failed)
}
