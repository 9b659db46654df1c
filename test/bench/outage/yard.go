package main

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/bench/harness"
)

const (
	// worked is the queue that a pool works on.
	worked = "orders-0000"
	// replicas are as many as the pool may have, and backlog more than they can do.
	replicas, backlog = 5, 1000
	// patience with whatever is waited for.
	patience = 2 * time.Minute
)

// yard is Queues on one broker, and a pool for the first of them.
type yard struct {
	harness.Yard
	queues int
}

// fill makes the objects, before the operator runs.
func (y *yard) fill(ctx context.Context, c *harness.Cluster, url string) error {
	if err := y.Open(ctx, c, url); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(harness.Creators)
	for i := range y.queues {
		group.Go(func() error { return c.Create(ctx, y.Queue(fmt.Sprintf("orders-%04d", i))) })
	}
	wp := y.Pool(worked)
	wp.Spec.Autoscaling.MaxReplicas = replicas
	group.Go(func() error { return c.Create(ctx, wp) })
	return group.Wait()
}

// load gives the pool a backlog, which simulated workers leave as it is.
func load(ctx context.Context, url string) error {
	nc, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	for range backlog {
		if _, err := js.Publish(ctx, "yardmaster."+worked+".ready.default", nil); err != nil {
			return err
		}
	}
	return nil
}

// sequentialJob of two steps of a second each.
func (y *yard) sequentialJob(name string) *v1alpha1.SequentialJob {
	sj := &v1alpha1.SequentialJob{ObjectMeta: y.Object(name)}
	sj.Spec.Template = &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{
		Annotations: map[string]string{"sim.localcluster.dev/duration": "1s"},
	}}
	for _, step := range []string{"first", "second"} {
		sj.Spec.Containers = append(sj.Spec.Containers, v1alpha1.Step{Name: step, Container: corev1.Container{
			Name: step, Image: "registry.example/tool:1", Command: []string{"run"},
		}})
	}
	return sj
}
