// Package jobreport looks, every interval, at all Jobs of some namespaces, and writes
// down in one JobReport for each which of them are stale.
//
// It only reads Jobs: it has neither the code nor the permission to change or delete
// one. What makes a Job stale is package zombie's business, what a report looks like
// package report's. A namespace that cannot be read says so in its own report, which
// keeps what was found before, and does not hold up the others.
package jobreport

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/internal/zombie"
)

// concurrentNamespaces is how many namespaces are scanned at once. Each asks for one page at a time,
// so that is also how many pages are in memory.
const concurrentNamespaces = 4

// maxScanDuration is the longest that a namespace's scan may take. It is never longer than the interval.
const maxScanDuration = 2 * time.Minute

// Options say what is scanned, and how it is judged.
type Options struct {
	// Namespaces that are scanned.
	Namespaces []string
	// Interval between scans.
	Interval time.Duration
	// MaxFindings is the most findings in a report.
	MaxFindings int
	// Thresholds say from which age on a Job is stale.
	Thresholds zombie.Thresholds
	// OpenReports has the findings written as OpenReports Reports too.
	OpenReports bool
}

// Reconciler scans namespaces. It is a manager's Runnable.
type Reconciler struct {
	client   client.Client // writes reports
	live     client.Reader // reads from the API server: a cache would hold all Jobs
	recorder events.EventRecorder
	clock    clock.WithTicker
	log      logr.Logger
	options  Options
}

// New returns a Scanner. The reader must not be a cache.
func New(c client.Client, live client.Reader, recorder events.EventRecorder, log logr.Logger, options Options) *Reconciler {
	return &Reconciler{client: c, live: live, recorder: recorder, clock: clock.RealClock{}, log: log, options: options}
}

// SetupWithManager has the manager scan, if there is a namespace to be scanned.
func SetupWithManager(mgr ctrl.Manager, options Options) error {
	if len(options.Namespaces) == 0 {
		return nil
	}
	return mgr.Add(New(mgr.GetClient(), mgr.GetAPIReader(), mgr.GetEventRecorder("jobreport-controller"),
		mgr.GetLogger().WithName("jobreport"), options))
}

// NeedLeaderElection keeps all replicas but one from scanning.
func (*Reconciler) NeedLeaderElection() bool { return true }

// Start scans at once, and then every interval, until ctx ends.
func (s *Reconciler) Start(ctx context.Context) error {
	initializeMetrics(s.options)
	ticker := s.clock.NewTicker(s.options.Interval)
	defer ticker.Stop()
	for {
		s.ReconcileAll(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// ReconcileAll scans each namespace once, some of them at a time.
func (s *Reconciler) ReconcileAll(ctx context.Context) {
	free := make(chan struct{}, concurrentNamespaces)
	var running sync.WaitGroup
	for _, namespace := range s.options.Namespaces {
		free <- struct{}{}
		running.Go(func() {
			defer func() { <-free }()
			s.Reconcile(ctx, namespace)
		})
	}
	running.Wait()
}

// Reconcile scans one namespace and stores what came of it.
func (s *Reconciler) Reconcile(ctx context.Context, namespace string) {
	if ctx.Err() != nil {
		return
	}
	began := s.clock.Now()
	tally, err := s.scanJobs(ctx, namespace, began)
	took := s.clock.Since(began)
	var unstored error
	switch {
	case ctx.Err() != nil:
		return
	case err == nil:
		scanDurationSeconds.Observe(took.Seconds())
		err = s.storeScan(ctx, namespace, tally, began, took)
	default:
		unstored = s.storeFailure(ctx, namespace, err)
	}
	if err == nil || ctx.Err() != nil {
		return
	}
	// Nobody but this ticker is there to return it to.
	failure := scanFailure(err)
	scanErrorsTotal.WithLabelValues(failure.Reason).Inc()
	s.log.Error(errors.Join(err, unstored), "Scan failed", "namespace", namespace, "reason", failure.Reason)
}
