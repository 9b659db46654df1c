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

// result is what one outage showed.
type result struct {
	// lost and back are how long it took until each Queue told of it.
	lost, back []time.Duration
	// sequence is how long the SequentialJob took that ran while the broker was gone.
	sequence time.Duration
	// fewest and most replicas that the pool was asked for from before until after.
	fewest, most int32
}

// measure runs the operator, and has its broker go and come back so often.
func (y *yard) measure(ctx context.Context, c *harness.Cluster, binary string, outages int, down time.Duration) ([]result, error) {
	broker, err := harness.StartNATS(ctx)
	if err != nil {
		return nil, err
	}
	defer broker.Close()
	defer y.Clear(ctx, c)
	if err := y.fill(ctx, c, broker.URL); err != nil {
		return nil, fmt.Errorf("filling the yard: %w", err)
	}
	o, err := observe(ctx, c, string(y.Yard))
	if err != nil {
		return nil, err
	}
	operator, err := harness.StartOperator(ctx, binary, c, "--namespaces", string(y.Yard))
	if err != nil {
		return nil, err
	}
	defer harness.End(operator)
	if err := y.WaitUntilDecided(ctx, c, patience, y.queues, 1); err != nil {
		return nil, err
	}
	if err := load(ctx, broker.URL); err != nil {
		return nil, fmt.Errorf("making a backlog: %w", err)
	}
	var results []result
	for i := range outages {
		r, err := y.outage(ctx, c, o, broker, i, down)
		if err != nil {
			return nil, fmt.Errorf("outage %d: %w", i+1, err)
		}
		fmt.Fprintf(os.Stderr, "  %d of %d: lost after %.2f s, back after %.2f s\n", i+1, outages,
			harness.Quantile(r.lost, 1).Seconds(), harness.Quantile(r.back, 1).Seconds())
		results = append(results, r)
	}
	return results, nil
}

// outage has the broker go and come back.
func (y *yard) outage(ctx context.Context, c *harness.Cluster, o *observer, broker *harness.NATS, i int, down time.Duration) (r result, err error) {
	if err := y.atWork(ctx, c, o); err != nil {
		return r, fmt.Errorf("waiting for all to be at work: %w", err)
	}
	o.reset()
	gone := time.Now()
	if err := broker.Kill(); err != nil {
		return r, err
	}
	if r.sequence, err = y.runSequence(ctx, c, fmt.Sprintf("during-%d", i)); err != nil {
		return r, fmt.Errorf("running a SequentialJob: %w", err)
	}
	if r.lost, err = y.until(ctx, o, metav1.ConditionFalse, gone); err != nil {
		return r, fmt.Errorf("waiting for the loss to be told of: %w", err)
	}
	if err := harness.Pause(ctx, down-time.Since(gone)); err != nil {
		return r, err
	}
	if err := broker.Restart(); err != nil {
		return r, err
	}
	if r.back, err = y.until(ctx, o, metav1.ConditionTrue, time.Now()); err != nil {
		return r, fmt.Errorf("waiting for the return to be told of: %w", err)
	}
	err = y.atWork(ctx, c, o)
	_, r.fewest, r.most = o.replicas()
	return r, err
}

// atWork waits until the pool has its figures and its workers, and a while more: another
// one each time, so that nothing is in step with what the operator does every so often.
func (y *yard) atWork(ctx context.Context, c *harness.Cluster, o *observer) error {
	if err := y.WaitUntilDecided(ctx, c, patience, y.queues, 1); err != nil {
		return err
	}
	err := harness.Poll(ctx, patience, func() (bool, error) {
		now, _, _ := o.replicas()
		return now == replicas, nil
	})
	if err != nil {
		return fmt.Errorf("%d replicas are wanted: %w", replicas, err)
	}
	return harness.Pause(ctx, 3*time.Second+time.Duration(rand.Int64N(int64(3*time.Second)))) //nolint:gosec // to spread, not to hide
}

// until waits until each Queue tells that of the broker, and how long each took.
func (y *yard) until(ctx context.Context, o *observer, status metav1.ConditionStatus, began time.Time) (took []time.Duration, err error) {
	var since []time.Time
	err = harness.Poll(ctx, patience, func() (bool, error) {
		var err error
		since, err = o.telling(status)
		return len(since) == y.queues, err
	})
	for _, at := range since {
		took = append(took, at.Sub(began))
	}
	return took, err
}

// runSequence has a SequentialJob run, and takes it away again.
func (y *yard) runSequence(ctx context.Context, c *harness.Cluster, name string) (time.Duration, error) {
	began := time.Now()
	sj := y.sequentialJob(name)
	if err := c.Create(ctx, sj); err != nil {
		return 0, err
	}
	err := harness.Poll(ctx, patience, func() (bool, error) {
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
