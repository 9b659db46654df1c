package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/bench/harness"
)

// patience is how long one measurement may take.
const patience = 20 * time.Minute

// runner is what runs the load: the operator, or the bare loop.
type runner interface {
	start(ctx context.Context, c *harness.Cluster, l load, ns string) (*exec.Cmd, error)
	bringIn(ctx context.Context, c *harness.Cluster, l load, ns string) error
}

// result is what one measurement found.
type result struct {
	makespan    time.Duration
	transitions []time.Duration
	writes      writes
	cpu         time.Duration
	peakRSS     int64 // bytes
}

// measure runs the load once, in a namespace of its own.
func measure(ctx context.Context, c *harness.Cluster, l load, r runner) (*result, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-"}}
	if err := c.Create(ctx, ns); err != nil {
		return nil, err
	}
	defer clearUp(ctx, c, ns)
	o, err := observe(ctx, c, ns.Name)
	if err != nil {
		return nil, err
	}
	before, err := countWrites(ctx, c)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	process, err := r.start(ctx, c, l, ns.Name)
	if err != nil {
		return nil, err
	}
	var idle time.Duration
	if _, isOperator := r.(operatorRunner); isOperator {
		begun = time.Now() // it was there before the work was
		if idle, err = harness.CPUOf(process.Process.Pid); err != nil {
			return nil, err
		}
	}
	if err := r.bringIn(ctx, c, l, ns.Name); err != nil {
		return nil, err
	}
	if err := l.wait(ctx, c, o, ns.Name); err != nil {
		return nil, err
	}
	_ = process.Process.Signal(os.Interrupt) // the bare loop may have ended by itself
	_ = process.Wait()
	cpu, peakRSS := harness.UsageOf(process.ProcessState)
	after, err := countWrites(ctx, c)
	if err != nil {
		return nil, err
	}
	transitions, last := o.results()
	slices.Sort(transitions)
	return &result{
		makespan:    last.Sub(begun),
		transitions: transitions,
		writes:      after.since(before),
		cpu:         cpu - idle,
		peakRSS:     peakRSS,
	}, nil
}

// wait waits for all Jobs to be over, and for the operator to have said so.
func (l load) wait(ctx context.Context, c *harness.Cluster, o *observer, ns string) error {
	progress := time.NewTicker(10 * time.Second)
	defer progress.Stop()
	err := harness.Poll(ctx, patience, func() (bool, error) {
		select {
		case <-progress.C:
			fmt.Fprintf(os.Stderr, "  %d of %d Jobs are over\n", o.jobsOver(), l.jobs())
		default:
		}
		return o.jobsOver() >= l.jobs(), nil
	})
	if err != nil {
		return err
	}
	return harness.Poll(ctx, time.Minute, func() (bool, error) {
		var list v1alpha1.SequentialJobList
		if err := c.List(ctx, &list, client.InNamespace(ns)); err != nil {
			return false, err
		}
		return !slices.ContainsFunc(list.Items, func(sj v1alpha1.SequentialJob) bool {
			return sj.Status.Phase != v1alpha1.PhaseCompleted || len(sj.Finalizers) > 0
		}), nil
	})
}

// clearUp deletes what the measurement made, and waits for it to be gone: the next one
// begins with the control plane at rest.
func clearUp(ctx context.Context, c *harness.Cluster, ns *corev1.Namespace) {
	ctx = context.WithoutCancel(ctx)
	background := client.PropagationPolicy(metav1.DeletePropagationBackground)
	_ = c.DeleteAllOf(ctx, &v1alpha1.SequentialJob{}, client.InNamespace(ns.Name), background)
	_ = c.DeleteAllOf(ctx, &batchv1.Job{}, client.InNamespace(ns.Name), background)
	_ = c.Delete(ctx, ns)
	if err := harness.Poll(ctx, patience, func() (bool, error) {
		var pods corev1.PodList
		if err := c.List(ctx, &pods, client.InNamespace(ns.Name), client.Limit(1)); err != nil {
			return false, err
		}
		return len(pods.Items) == 0, nil
	}); err != nil {
		fmt.Fprintln(os.Stderr, "bench: clearing up:", err)
	}
}
