package controller

import (
	"context"
	"sync"
	"time"

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

// retryInterval is the wait after the first failed scan of a namespace, such as one whose Role does not exist yet. Each further
// failure doubles it, up to the interval.
const retryInterval = 15 * time.Second

// Start implements manager.Runnable. It reconciles each namespace immediately and then every interval, until ctx ends. Jobs are
// not watched, because a watch would keep all of them in memory.
func (r *Reconciler) Start(ctx context.Context) error {
	initializeMetrics(r.options)
	r.forEachNamespace(func(namespace string, slots chan struct{}) {
		retry := retryInterval
		for ctx.Err() == nil {
			start := r.clock.Now()
			wait := min(retry, r.options.Interval)
			if r.reconcileInSlot(ctx, namespace, slots) {
				retry, wait = retryInterval, r.options.Interval-r.clock.Since(start)
			} else {
				retry = 2 * wait
			}
			select {
			case <-ctx.Done():
			case <-r.clock.After(wait):
			}
		}
	})
	return nil
}

// ReconcileAll reconciles each namespace once, several at the same time.
func (r *Reconciler) ReconcileAll(ctx context.Context) {
	r.forEachNamespace(func(namespace string, slots chan struct{}) { r.reconcileInSlot(ctx, namespace, slots) })
}

func (r *Reconciler) forEachNamespace(do func(namespace string, slots chan struct{})) {
	slots := make(chan struct{}, concurrentNamespaces)
	var running sync.WaitGroup
	for _, namespace := range r.options.Namespaces {
		running.Go(func() { do(namespace, slots) })
	}
	running.Wait()
}

// reconcileInSlot reconciles a namespace once a slot is free. It reports whether the scan succeeded.
func (r *Reconciler) reconcileInSlot(ctx context.Context, namespace string, slots chan struct{}) bool {
	select {
	case <-ctx.Done():
		return false
	case slots <- struct{}{}:
	}
	defer func() { <-slots }()
	return r.reconcileAndLog(ctx, namespace)
}
