package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"text/tabwriter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/clock"
	"github.com/yardmaster/yardmaster/test/bench/harness"
	"github.com/yardmaster/yardmaster/test/testenv"
)

// outageResult is the result of one outage.
type outageResult struct {
	// unreachableAfter and reachableAfter are the times until each Queue reported the change.
	unreachableAfter, reachableAfter []time.Duration
	// sequenceDuration is the duration of the SequentialJob that ran during the outage.
	sequenceDuration time.Duration
	// minReplicas and maxReplicas are the bounds of the pool's replicas from before the outage until after it.
	minReplicas, maxReplicas int32
}

// measureOutages runs the operator and measures the given number of outages of its broker.
func (env *environment) measureOutages(ctx context.Context, c *harness.Cluster, binary string, outages int) ([]outageResult, error) {
	broker, end, err := env.StartBroker(ctx, c, env.createObjects)
	if err != nil {
		return nil, err
	}
	defer end()
	o, err := startObserver(ctx, c, string(env.Environment))
	if err != nil {
		return nil, err
	}
	operator, err := testenv.StartOperator(ctx, binary, c.Cluster, "--namespaces", string(env.Environment))
	if err != nil {
		return nil, err
	}
	defer operator.Stop()
	if err := env.WaitUntilReconciled(ctx, c, waitTimeout, env.queues, 1); err != nil {
		return nil, err
	}
	if err := publishBacklog(ctx, broker.URL); err != nil {
		return nil, fmt.Errorf("publishing the backlog: %w", err)
	}
	var results []outageResult
	for i := range outages {
		r, err := env.measureOutage(ctx, c, o, broker, i)
		if err != nil {
			return nil, fmt.Errorf("outage %d: %w", i+1, err)
		}
		harness.PrintProgress("%d of %d: unreachable after %.2f s, reachable after %.2f s", i+1, outages,
			harness.Quantile(r.unreachableAfter, 1).Seconds(), harness.Quantile(r.reachableAfter, 1).Seconds())
		results = append(results, r)
	}
	return results, nil
}

// measureOutage kills and restarts the broker.
func (env *environment) measureOutage(ctx context.Context, c *harness.Cluster, o *clusterObserver, broker *harness.NATSProcess, i int) (r outageResult, err error) {
	if err := env.waitUntilSteady(ctx, c, o); err != nil {
		return r, fmt.Errorf("waiting for a steady state: %w", err)
	}
	o.resetReplicaBounds()
	killedAt := time.Now()
	if err := broker.Kill(); err != nil {
		return r, err
	}
	if r.sequenceDuration, err = env.runSequentialJob(ctx, c, fmt.Sprintf("during-%d", i)); err != nil {
		return r, fmt.Errorf("running a SequentialJob: %w", err)
	}
	if r.unreachableAfter, err = env.waitForCondition(ctx, o, metav1.ConditionFalse, killedAt); err != nil {
		return r, fmt.Errorf("waiting for BrokerReachable=False: %w", err)
	}
	if err := clock.SleepContext(ctx, minDowntime-time.Since(killedAt)); err != nil {
		return r, err
	}
	if err := broker.Restart(); err != nil {
		return r, err
	}
	if r.reachableAfter, err = env.waitForCondition(ctx, o, metav1.ConditionTrue, time.Now()); err != nil {
		return r, fmt.Errorf("waiting for BrokerReachable=True: %w", err)
	}
	err = env.waitUntilSteady(ctx, c, o)
	_, r.minReplicas, r.maxReplicas = o.replicaCounts()
	return r, err
}

// waitUntilSteady waits until the pool has its metrics and its workers, and then for a random
// time, so that the outage is not synchronized with periodic work of the operator.
func (env *environment) waitUntilSteady(ctx context.Context, c *harness.Cluster, o *clusterObserver) error {
	if err := env.WaitUntilReconciled(ctx, c, waitTimeout, env.queues, 1); err != nil {
		return err
	}
	err := harness.PollUntil(ctx, waitTimeout, func() (bool, error) {
		now, _, _ := o.replicaCounts()
		return now == poolReplicas, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for %d replicas: %w", poolReplicas, err)
	}
	return clock.SleepContext(ctx, 3*time.Second+time.Duration(rand.Int64N(int64(3*time.Second)))) //nolint:gosec // the time is not a secret
}

// waitForCondition waits until each Queue has reported the status of BrokerReachable, and returns how long each took.
func (env *environment) waitForCondition(ctx context.Context, o *clusterObserver, status metav1.ConditionStatus, began time.Time) (took []time.Duration, err error) {
	err = harness.PollUntil(ctx, waitTimeout, func() (_ bool, err error) {
		took, err = o.transitionsSince(began, status)
		return len(took) == env.queues, err
	})
	return took, err
}

// runSequentialJob runs a SequentialJob, deletes it, and returns how long it took.
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
			return false, fmt.Errorf("SequentialJob %s failed", name)
		}
		return sj.Status.Phase == v1alpha1.PhaseCompleted, nil
	})
	if err != nil {
		return 0, err
	}
	return time.Since(began), c.Delete(ctx, sj, client.PropagationPolicy(metav1.DeletePropagationBackground))
}

// Targets for the time until every Queue reports the state of the broker.
const (
	maxTimeUntilUnreachable = 15 * time.Second
	maxTimeUntilReachable   = 10 * time.Second
)

// printReport prints the results and returns an error if a target is missed. SequentialJobs
// need no target: if one fails, the measurement fails.
func printReport(env *environment, results []outageResult) error {
	var unreachable, reachable, sequences []float64
	isConstant := true
	for _, r := range results {
		unreachable, reachable = append(unreachable, toSeconds(r.unreachableAfter...)...), append(reachable, toSeconds(r.reachableAfter...)...)
		sequences = append(sequences, toSeconds(r.sequenceDuration)...)
		isConstant = isConstant && r.minReplicas == poolReplicas && r.maxReplicas == poolReplicas
	}
	fmt.Printf("\n%d Queues, %d outages of the broker\n", env.queues, len(results))
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "seconds\tp50\tp90\tmax\t")
	row := func(label string, all []float64) {
		fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%.2f\t\n", label, harness.Quantile(all, .5), harness.Quantile(all, .9), harness.Quantile(all, 1))
	}
	row("from the outage to BrokerReachable=False", unreachable)
	row("from the restart to BrokerReachable=True", reachable)
	row("a SequentialJob during the outage", sequences)
	_ = w.Flush() // it writes to standard output
	return errors.Join(
		harness.CheckTarget(fmt.Sprintf("every Queue reports the outage within %s", maxTimeUntilUnreachable), harness.Quantile(unreachable, 1) <= maxTimeUntilUnreachable.Seconds()),
		harness.CheckTarget(fmt.Sprintf("every Queue reports the recovery within %s", maxTimeUntilReachable), harness.Quantile(reachable, 1) <= maxTimeUntilReachable.Seconds()),
		harness.CheckTarget(fmt.Sprintf("the pool always has %d desired replicas", poolReplicas), isConstant),
	)
}

func toSeconds(all ...time.Duration) (values []float64) {
	for _, d := range all {
		values = append(values, d.Seconds())
	}
	return values
}
