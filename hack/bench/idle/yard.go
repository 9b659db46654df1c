package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/hack/bench/lab"
)

const (
	namespace    = "bench-idle"
	brokerSecret = "broker"
	// creators is how many requests at once make objects.
	creators = 16
	// patience with the operator, until all is decided.
	patience = 10 * time.Minute
)

// yard is Queues, and a WorkerPool for each.
type yard struct{ pools int }

// fill makes the objects, before the operator runs.
func (y *yard) fill(ctx context.Context, c *lab.Cluster, url string) error {
	if err := client.IgnoreAlreadyExists(c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})); err != nil {
		return err
	}
	secret := &corev1.Secret{ObjectMeta: object(brokerSecret), StringData: map[string]string{"url": url}}
	if err := c.Create(ctx, secret); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(creators)
	for i := range y.pools {
		group.Go(func() error {
			if err := c.Create(ctx, queue(i)); err != nil {
				return err
			}
			return c.Create(ctx, pool(i))
		})
	}
	return group.Wait()
}

func object(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: namespace}
}

func queue(i int) *v1alpha1.Queue {
	broker := &v1alpha1.Broker{Engine: v1alpha1.EngineNATS}
	broker.URLSecretRef.Name = brokerSecret
	return &v1alpha1.Queue{ObjectMeta: object(name(i)), Spec: v1alpha1.QueueSpec{Broker: broker}}
}

// pool that sleeps until its queue has a message.
func pool(i int) *v1alpha1.WorkerPool {
	return &v1alpha1.WorkerPool{ObjectMeta: object(name(i)), Spec: v1alpha1.WorkerPoolSpec{
		Queues:      []v1alpha1.PoolQueue{{Name: name(i)}},
		Autoscaling: &v1alpha1.Autoscaling{MaxReplicas: 10},
		Template: &corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: v1alpha1.WorkerContainer, Image: "registry.example/worker:1.2.3"}},
		}},
	}}
}

func name(i int) string { return fmt.Sprintf("orders-%04d", i) }

// waitUntilDecided waits until every queue is on the broker and every pool's is read.
func (y *yard) waitUntilDecided(ctx context.Context, c client.Reader) error {
	told := time.Now()
	return lab.Poll(ctx, patience, func() (bool, error) {
		queues, pools, err := decided(ctx, c)
		if time.Since(told) > 10*time.Second {
			told = time.Now()
			fmt.Fprintf(os.Stderr, "  %d Queues and %d WorkerPools are decided\n", queues, pools)
		}
		if err != nil || queues == y.pools && pools == y.pools {
			return true, err
		}
		return false, pause(ctx, time.Second) // a list of thousands costs the control plane, too
	})
}

// decided counts the objects of which the operator has told how they stand.
func decided(ctx context.Context, c client.Reader) (queues, pools int, err error) {
	var allQueues v1alpha1.QueueList
	if err := c.List(ctx, &allQueues, client.InNamespace(namespace)); err != nil {
		return 0, 0, err
	}
	for i := range allQueues.Items {
		if meta.IsStatusConditionTrue(allQueues.Items[i].Status.Conditions, v1alpha1.ConditionReady) {
			queues++
		}
	}
	var allPools v1alpha1.WorkerPoolList
	if err := c.List(ctx, &allPools, client.InNamespace(namespace)); err != nil {
		return 0, 0, err
	}
	for i := range allPools.Items {
		if meta.IsStatusConditionTrue(allPools.Items[i].Status.Conditions, v1alpha1.ConditionMetricsFresh) {
			pools++
		}
	}
	return queues, pools, nil
}

// clear removes the objects, with nobody there to take their queues off the broker: that
// goes too.
func (*yard) clear(ctx context.Context, c *lab.Cluster) {
	ctx = context.WithoutCancel(ctx)
	if err := clearObjects(ctx, c); err != nil {
		fmt.Fprintln(os.Stderr, "bench: clearing the yard:", err)
	}
}

func clearObjects(ctx context.Context, c *lab.Cluster) error {
	var queues v1alpha1.QueueList
	var pools v1alpha1.WorkerPoolList
	for _, list := range []client.ObjectList{&queues, &pools} {
		if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return err
		}
	}
	group, requests := errgroup.WithContext(ctx)
	group.SetLimit(creators)
	for i := range queues.Items {
		group.Go(func() error { return release(requests, c, &queues.Items[i]) })
	}
	for i := range pools.Items {
		group.Go(func() error { return release(requests, c, &pools.Items[i]) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return c.Delete(ctx, &corev1.Secret{ObjectMeta: object(brokerSecret)})
}

// release deletes an object without its finalizers' being heard.
func release(ctx context.Context, c client.Writer, o client.Object) error {
	none := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
	if err := c.Patch(ctx, o, none); err != nil {
		return client.IgnoreNotFound(err)
	}
	return client.IgnoreNotFound(c.Delete(ctx, o))
}
