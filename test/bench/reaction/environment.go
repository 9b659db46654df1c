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
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool"
	"github.com/yardmaster/yardmaster/test/bench/harness"
)

const (
	// measuredQueue is the name of the Queue and of the WorkerPool that are measured.
	measuredQueue = "orders"
	// waitTimeout bounds every wait.
	waitTimeout = 2 * time.Minute
)

// environment contains the measured WorkerPool, and others that are idle.
type environment struct {
	harness.Environment
	trials, burstMessages, idlePools int
}

// createObjects creates the objects before the operator starts.
func (env *environment) createObjects(ctx context.Context, c *harness.Cluster, url string) error {
	if err := env.CreateNamespace(ctx, c, url); err != nil {
		return err
	}
	queue, pool := env.NewQueue(measuredQueue), env.NewWorkerPool(measuredQueue)
	// A simulated worker has no admin API. The operator removes it after one lease.
	queue.Spec.Lease = newDuration(5 * time.Second)
	// The pool scales to zero quickly. This does not affect how it scales up.
	pool.Spec.Autoscaling.IdleAfter = newDuration(time.Second)
	pool.Spec.Autoscaling.ScaleDown = &v1alpha1.ScaleRule{
		Window: newDuration(0), MaxStep: new(intstr.FromString("100%")), Period: newDuration(time.Second),
	}
	objects := []client.Object{queue, pool}
	for i := range env.idlePools {
		name := fmt.Sprintf("beside-%d", i)
		objects = append(objects, env.NewQueue(name), env.NewWorkerPool(name))
	}
	for _, o := range objects {
		if err := c.Create(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

func newDuration(d time.Duration) *v1alpha1.Duration {
	return &v1alpha1.Duration{Duration: metav1.Duration{Duration: d}}
}

// waitUntilIdle waits until the pool is at zero and its Pods are deleted.
func (env *environment) waitUntilIdle(ctx context.Context, c client.Reader) error {
	return harness.PollUntil(ctx, waitTimeout, func() (bool, error) {
		var wp v1alpha1.WorkerPool
		if err := c.Get(ctx, client.ObjectKey{Namespace: string(env.Environment), Name: measuredQueue}, &wp); err != nil {
			return false, err
		}
		s := &wp.Status
		if s.Desired != 0 || s.Replicas != 0 || s.LastDecision == nil || s.LastDecision.Reason != idleReason {
			return false, nil
		}
		var pods corev1.PodList
		err := c.List(ctx, &pods, client.InNamespace(string(env.Environment)), client.MatchingLabels{workerpool.LabelWorkerPool: measuredQueue})
		return len(pods.Items) == 0, err
	})
}
