package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/bench/harness"
)

const (
	// consumedQueue is the queue of the WorkerPool.
	consumedQueue = "orders-0000"
	// poolReplicas is the pool's maxReplicas. backlogMessages is more than that number of workers can process.
	poolReplicas, backlogMessages = 5, 1000
	// minDowntime is the shortest outage: after that time, the interval between reconnects no longer grows.
	minDowntime = 20 * time.Second
	// waitTimeout bounds every wait.
	waitTimeout = 2 * time.Minute
)

// environment contains Queues on one broker, and a WorkerPool for the first of them.
type environment struct {
	harness.Environment
	queues int
}

// createObjects creates the objects before the operator starts.
func (env *environment) createObjects(ctx context.Context, c *harness.Cluster, url string) error {
	if err := env.CreateNamespace(ctx, c, url); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(harness.CreateConcurrency)
	for i := range env.queues {
		group.Go(func() error { return c.Create(ctx, env.NewQueue(fmt.Sprintf("orders-%04d", i))) })
	}
	wp := env.NewWorkerPool(consumedQueue)
	wp.Spec.Autoscaling.MaxReplicas = poolReplicas
	group.Go(func() error { return c.Create(ctx, wp) })
	return group.Wait()
}

// publishBacklog publishes a backlog. It stays, because simulated workers process nothing.
func publishBacklog(ctx context.Context, url string) error {
	producer, err := harness.ConnectProducer(url, consumedQueue)
	if err != nil {
		return err
	}
	defer producer.CloseConnection()
	return producer.PublishBurst(ctx, backlogMessages, waitTimeout)
}

// newSequentialJob returns a SequentialJob with two steps of one second each.
func (env *environment) newSequentialJob(name string) *v1alpha1.SequentialJob {
	sj := &v1alpha1.SequentialJob{ObjectMeta: env.ObjectMeta(name)}
	sj.Spec.Template = &v1alpha1.PodTemplate{PodTemplateSpec: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{
		Annotations: map[string]string{"sim.localcluster.dev/duration": "1s"},
	}}}
	for _, step := range []string{"first", "second"} {
		container := corev1.Container{Name: step, Image: "registry.example/tool:1", Command: []string{"run"}}
		sj.Spec.Containers = append(sj.Spec.Containers, v1alpha1.Step{Name: step, Container: container})
	}
	return sj
}
