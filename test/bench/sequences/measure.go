package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/bench/harness"
	"github.com/yardmaster/yardmaster/test/testenv"
)

// measurementTimeout bounds one measurement.
const measurementTimeout = 20 * time.Minute

// loadRunner runs a load: the operator or the bare loop.
type loadRunner interface {
	startProcess(ctx context.Context, c *harness.Cluster, l sequenceLoad, ns string) (*testenv.Process, error)
	createLoad(ctx context.Context, c *harness.Cluster, l sequenceLoad, ns string) error
}

// loadResult is the result of one measurement.
type loadResult struct {
	makespan    time.Duration
	transitions []time.Duration
	writes      apiWrites
	cpu         time.Duration
	peakRSS     int64 // bytes
}

// measureLoad runs the load once in a new namespace.
func measureLoad(ctx context.Context, c *harness.Cluster, l sequenceLoad, r loadRunner) (*loadResult, error) {
	ctx, cancel := context.WithTimeout(ctx, measurementTimeout)
	defer cancel()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-"}}
	if err := c.Create(ctx, ns); err != nil {
		return nil, err
	}
	defer deleteNamespace(ctx, c, ns)
	o, err := startObserver(ctx, c, ns.Name)
	if err != nil {
		return nil, err
	}
	before, err := countWrites(ctx, c)
	if err != nil {
		return nil, err
	}
	startedAt := time.Now()
	process, err := r.startProcess(ctx, c, l, ns.Name)
	if err != nil {
		return nil, err
	}
	var idle time.Duration
	if _, isOperator := r.(operatorRunner); isOperator {
		startedAt = time.Now() // the operator's start does not count
		if idle, err = harness.ProcessCPUTime(process.Pid()); err != nil {
			return nil, err
		}
	}
	if err := r.createLoad(ctx, c, l, ns.Name); err != nil {
		return nil, err
	}
	if err := l.waitUntilFinished(ctx, c, o, ns.Name); err != nil {
		return nil, err
	}
	process.Stop() // the bare loop may have ended
	cpu, peakRSS := harness.ExitedProcessUsage(process.State())
	after, err := countWrites(ctx, c)
	if err != nil {
		return nil, err
	}
	transitions, last := o.transitionResults()
	slices.Sort(transitions)
	return &loadResult{
		makespan:    last.Sub(startedAt),
		transitions: transitions,
		writes:      after.difference(before),
		cpu:         cpu - idle,
		peakRSS:     peakRSS,
	}, nil
}

// waitUntilFinished waits until all Jobs have ended and the operator has recorded that.
func (l sequenceLoad) waitUntilFinished(ctx context.Context, c *harness.Cluster, o *jobObserver, ns string) error {
	progress := time.NewTicker(10 * time.Second)
	defer progress.Stop()
	err := harness.PollUntil(ctx, measurementTimeout, func() (bool, error) {
		select {
		case <-progress.C:
			harness.PrintProgress("%d of %d Jobs have ended", o.finishedCount(), l.jobCount())
		default:
		}
		return o.finishedCount() >= l.jobCount(), nil
	})
	if err != nil {
		return err
	}
	return harness.PollUntil(ctx, time.Minute, func() (bool, error) {
		var list v1alpha1.SequentialJobList
		if err := c.List(ctx, &list, client.InNamespace(ns)); err != nil {
			return false, err
		}
		return !slices.ContainsFunc(list.Items, func(sj v1alpha1.SequentialJob) bool {
			return sj.Status.Phase != v1alpha1.PhaseCompleted || len(sj.Finalizers) > 0
		}), nil
	})
}

// deleteNamespace deletes the objects of the measurement and waits until its Pods are deleted,
// so that the next measurement starts with an idle control plane.
func deleteNamespace(ctx context.Context, c *harness.Cluster, ns *corev1.Namespace) {
	ctx = context.WithoutCancel(ctx)
	background := client.PropagationPolicy(metav1.DeletePropagationBackground)
	_ = c.DeleteAllOf(ctx, &v1alpha1.SequentialJob{}, client.InNamespace(ns.Name), background)
	_ = c.DeleteAllOf(ctx, &batchv1.Job{}, client.InNamespace(ns.Name), background)
	_ = c.Delete(ctx, ns)
	if err := harness.PollUntil(ctx, measurementTimeout, func() (bool, error) {
		var pods corev1.PodList
		if err := c.List(ctx, &pods, client.InNamespace(ns.Name), client.Limit(1)); err != nil {
			return false, err
		}
		return len(pods.Items) == 0, nil
	}); err != nil {
		fmt.Fprintln(os.Stderr, "bench: deleting the namespace:", err)
	}
}
