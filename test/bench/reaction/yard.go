package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/pool"
	"github.com/yardmaster/yardmaster/test/bench/harness"
)

const (
	// measured is the queue, and the pool, that is measured.
	measured = "orders"
	// patience with whatever is waited for.
	patience = 2 * time.Minute
)

// yard is a pool that is measured, and others that sleep beside it.
type yard struct {
	harness.Yard
	jobs, beside int
}

// fill makes the objects, before the operator runs.
func (y *yard) fill(ctx context.Context, c *harness.Cluster, url string) error {
	if err := y.Open(ctx, c, url); err != nil {
		return err
	}
	queue, hasty := y.Queue(measured), y.Pool(measured)
	// A worker that cannot be asked, as a simulated one, is let go after a lease.
	queue.Spec.Lease = duration(5 * time.Second)
	// So that the pool is soon at zero again. How it grows does not depend on it.
	hasty.Spec.Autoscaling.IdleAfter = duration(time.Second)
	hasty.Spec.Autoscaling.ScaleDown = &v1alpha1.ScaleRule{
		Window: duration(0), MaxStep: new(intstr.FromString("100%")), Period: duration(time.Second),
	}
	objects := []client.Object{queue, hasty}
	for i := range y.beside {
		name := fmt.Sprintf("beside-%d", i)
		objects = append(objects, y.Queue(name), y.Pool(name))
	}
	for _, o := range objects {
		if err := c.Create(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

func duration(d time.Duration) *v1alpha1.Duration {
	return &v1alpha1.Duration{Duration: metav1.Duration{Duration: d}}
}

// asleep waits until the pool is at zero, and nothing is left of its workers.
func (y *yard) asleep(ctx context.Context, c client.Reader) error {
	return harness.Poll(ctx, patience, func() (bool, error) {
		var wp v1alpha1.WorkerPool
		if err := c.Get(ctx, client.ObjectKey{Namespace: string(y.Yard), Name: measured}, &wp); err != nil {
			return false, err
		}
		s := &wp.Status
		if s.Desired != 0 || s.Replicas != 0 || s.LastDecision == nil || s.LastDecision.Reason != idle {
			return false, nil
		}
		var pods corev1.PodList
		err := c.List(ctx, &pods, client.InNamespace(string(y.Yard)), client.MatchingLabels{pool.LabelWorkerPool: measured})
		return len(pods.Items) == 0, err
	})
}
