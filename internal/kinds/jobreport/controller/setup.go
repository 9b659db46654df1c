package controller

import (
	"context"
	"sync"

	ctrl "sigs.k8s.io/controller-runtime"
)

// concurrentNamespaces bounds the namespaces that are scanned at the same time. Each scan has one page of Jobs in memory.
const concurrentNamespaces = 4

// SetupWithManager adds the reconciler to the manager if there are namespaces to scan.
func SetupWithManager(mgr ctrl.Manager, options Options) error {
	if len(options.Namespaces) == 0 {
		return nil
	}
	return mgr.Add(New(mgr.GetClient(), mgr.GetAPIReader(), mgr.GetEventRecorder("jobreport-controller"),
		mgr.GetLogger().WithName("jobreport"), options))
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: only the leader scans.
func (*Reconciler) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable. It reconciles all namespaces immediately and then every interval, until ctx ends. Jobs are
// not watched, because a watch would keep all of them in memory.
func (r *Reconciler) Start(ctx context.Context) error {
	initializeMetrics(r.options)
	ticker := r.clock.NewTicker(r.options.Interval)
	defer ticker.Stop()
	for {
		r.ReconcileAll(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// ReconcileAll reconciles each namespace once, several at the same time.
func (r *Reconciler) ReconcileAll(ctx context.Context) {
	slots := make(chan struct{}, concurrentNamespaces)
	var running sync.WaitGroup
	for _, namespace := range r.options.Namespaces {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			if ctx.Err() == nil {
				r.reconcileAndLog(ctx, namespace)
			}
		})
	}
	running.Wait()
}
