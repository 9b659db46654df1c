package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/bench/harness"
)

// outageResult is what one outage showed.
type outageResult struct {
	// unreachableAfter and back are how long it took until each Queue told of it.
	unreachableAfter, reachableAfter []time.Duration
	// sequenceDuration is how long the SequentialJob took that ran while the broker was gone.
	sequenceDuration time.Duration
	// minReplicas and most replicas that the pool was asked for from before until after.
	minReplicas, maxReplicas int32
}

// measureOutages runs the operator, and has its broker go and come back so often.
func (env *environment) measureOutages(ctx context.Context, c *harness.Cluster, binary string, outages int, down time.Duration) ([]outageResult, error) {
	broker, err := harness.StartNATS(ctx)
	if err != nil {
		return nil, err
	}
	defer broker.StopAndRemove()
	defer env.DeleteObjects(ctx, c)
	if err := env.createObjects(ctx, c, broker.URL); err != nil {
		return nil, fmt.Errorf("filling the yard: %w", err)
	}
	o, err := startObserver(ctx, c, string(env.Environment))
	if err != nil {
		return nil, err
	}
	operator, err := harness.StartOperator(ctx, binary, c, "--namespaces", string(env.Environment))
	if err != nil {
		return nil, err
	}
	defer harness.TerminateProcess(operator)
	if err := env.WaitUntilReconciled(ctx, c, waitTimeout, env.queues, 1); err != nil {
		return nil, err
	}
	if err := publishBacklog(ctx, broker.URL); err != nil {
		return nil, fmt.Errorf("making a backlog: %w", err)
	}
	var results []outageResult
	for i := range outages {
		r, err := env.measureOutage(ctx, c, o, broker, i, down)
		if err != nil {
			return nil, fmt.Errorf("outage %d: %w", i+1, err)
		}
		fmt.Fprintf(os.Stderr, "  %d of %d: lost after %.2f s, back after %.2f s\n", i+1, outages,
			harness.Quantile(r.unreachableAfter, 1).Seconds(), harness.Quantile(r.reachableAfter, 1).Seconds())
		results = append(results, r)
	}
	return results, nil
}

// measureOutage has the broker go and come back.
func (env *environment) measureOutage(ctx context.Context, c *harness.Cluster, o *clusterObserver, broker *harness.NATSProcess, i int, down time.Duration) (r outageResult, err error) {
	if err := env.waitUntilSteady(ctx, c, o); err != nil {
		return r, fmt.Errorf("waiting for all to be at work: %w", err)
	}
	o.resetReplicaBounds()
	gone := time.Now()
	if err := broker.Kill(); err != nil {
		return r, err
	}
	if r.sequenceDuration, err = env.runSequentialJob(ctx, c, fmt.Sprintf("during-%d", i)); err != nil {
		return r, fmt.Errorf("running a SequentialJob: %w", err)
	}
	if r.unreachableAfter, err = env.waitForCondition(ctx, o, metav1.ConditionFalse, gone); err != nil {
		return r, fmt.Errorf("waiting for the loss to be told of: %w", err)
	}
	if err := harness.SleepContext(ctx, down-time.Since(gone)); err != nil {
		return r, err
	}
	if err := broker.Restart(); err != nil {
		return r, err
	}
	if r.reachableAfter, err = env.waitForCondition(ctx, o, metav1.ConditionTrue, time.Now()); err != nil {
		return r, fmt.Errorf("waiting for the return to be told of: %w", err)
	}
	err = env.waitUntilSteady(ctx, c, o)
	_, r.minReplicas, r.maxReplicas = o.replicaCounts()
	return r, err
}

// waitUntilSteady waits until the pool has its figures and its workers, and a while more: another
// one each time, so that nothing is in step with what the operator does every so often.
func (env *environment) waitUntilSteady(ctx context.Context, c *harness.Cluster, o *clusterObserver) error {
	if err := env.WaitUntilReconciled(ctx, c, waitTimeout, env.queues, 1); err != nil {
		return err
	}
	err := harness.PollUntil(ctx, waitTimeout, func() (bool, error) {
		now, _, _ := o.replicaCounts()
		return now == poolReplicas, nil
	})
	if err != nil {
		return fmt.Errorf("%d replicas are wanted: %w", poolReplicas, err)
	}
	return harness.SleepContext(ctx, 3*time.Second+time.Duration(rand.Int64N(int64(3*time.Second)))) //nolint:gosec // to spread, not to hide
}

// waitForCondition waits until each Queue tells that of the broker, and how long each took.
func (env *environment) waitForCondition(ctx context.Context, o *clusterObserver, status metav1.ConditionStatus, began time.Time) (took []time.Duration, err error) {
	var since []time.Time
	err = harness.PollUntil(ctx, waitTimeout, func() (bool, error) {
		var err error
		since, err = o.transitionTimes(status)
		return len(since) == env.queues, err
	})
	for _, at := range since {
		took = append(took, at.Sub(began))
	}
	return took, err
}

// runSequentialJob has a SequentialJob run, and takes it away again.
func (env *environment) runSequentialJob(ctx context.Context, c *harness.Cluster, name string) (time.Duration, error) {
	began := time.Now()
	sj := env.newSequentialJob(name)
	if err := c.Create(ctx, sj); err != nil {
		return 0, err
	}
	err := harness.PollUntil(ctx, waitTimeout, func() (bool, error) {
		if err := c.Get(ctx, client.ObjectKeyFromObject(sj), sj); err != nil {
			return false, err
		}
		if sj.Status.Phase == v1alpha1.PhaseFailed {
			return false, fmt.Errorf("%s failed", name)
		}
		return sj.Status.Phase == v1alpha1.PhaseCompleted, nil
	})
	if err != nil {
		return 0, err
	}
	return time.Since(began), c.Delete(ctx, sj, client.PropagationPolicy(metav1.DeletePropagationBackground))
}
