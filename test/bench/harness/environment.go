package harness

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
	"github.com/yardmaster/yardmaster/internal/clock"
)

const (
	brokerSecret = "broker"
	// CreateConcurrency is the number of concurrent requests that create objects.
	CreateConcurrency = 16
)

// Environment is a namespace with Queues and WorkerPools.
type Environment string

// CreateNamespace creates the namespace and a Secret with the URL of the broker.
func (env Environment) CreateNamespace(ctx context.Context, c client.Client, url string) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: string(env)}}
	if err := client.IgnoreAlreadyExists(c.Create(ctx, ns)); err != nil {
		return err
	}
	secret := &corev1.Secret{ObjectMeta: env.ObjectMeta(brokerSecret), StringData: map[string]string{"url": url}}
	metav1.SetMetaDataLabel(&secret.ObjectMeta, v1alpha1.LabelBroker, "true")
	return c.Create(ctx, secret)
}

// StartBroker starts a NATS server and creates the objects of the environment with its URL. Call
// the returned function at the end: it deletes the objects and stops the server.
func (env Environment) StartBroker(
	ctx context.Context, c *Cluster, createObjects func(ctx context.Context, c *Cluster, url string) error,
) (*NATSProcess, func(), error) {
	nats, err := StartNATS(ctx)
	if err != nil {
		return nil, nil, err
	}
	end := func() {
		env.DeleteObjects(ctx, c)
		nats.StopAndRemove()
	}
	if err := createObjects(ctx, c, nats.URL); err != nil {
		end()
		return nil, nil, fmt.Errorf("creating the environment: %w", err)
	}
	return nats, end, nil
}

// ObjectMeta returns the metadata of an object in the environment.
func (env Environment) ObjectMeta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: string(env)}
}

// NewQueue returns a Queue on the environment's broker.
func (env Environment) NewQueue(name string) *v1alpha1.Queue {
	broker := &v1alpha1.Broker{Engine: v1alpha1.EngineNATS}
	broker.URLSecretRef.Name = brokerSecret
	return &v1alpha1.Queue{ObjectMeta: env.ObjectMeta(name), Spec: v1alpha1.QueueSpec{QueueSettings: v1alpha1.QueueSettings{Broker: broker}, Name: name}}
}

// NewWorkerPool returns a WorkerPool for the queue of the same name. It scales to zero when idle.
func (env Environment) NewWorkerPool(name string) *v1alpha1.WorkerPool {
	return &v1alpha1.WorkerPool{ObjectMeta: env.ObjectMeta(name), Spec: v1alpha1.WorkerPoolSpec{
		Queues:      []v1alpha1.PoolQueue{{LocalReference: v1alpha1.LocalReference{Name: name}}},
		Autoscaling: &v1alpha1.Autoscaling{MaxReplicas: 10},
		Template: &corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: v1alpha1.WorkerContainer, Image: "registry.example/worker:1.2.3"}},
		}},
	}}
}

// WaitUntilReconciled waits until the given numbers of Queues are ready and of WorkerPools have current metrics.
func (env Environment) WaitUntilReconciled(ctx context.Context, c client.Reader, patience time.Duration, queues, pools int) error {
	reportedAt := time.Now()
	return PollUntil(ctx, patience, func() (bool, error) {
		ready, fresh, err := env.countReconciled(ctx, c)
		if err != nil || ready == queues && fresh == pools {
			return true, err
		}
		if time.Since(reportedAt) > 10*time.Second {
			reportedAt = time.Now()
			PrintProgress("%d Queues and %d WorkerPools are reconciled", ready, fresh)
		}
		return false, clock.SleepContext(ctx, time.Second) // lists of thousands of objects would add load to the control plane
	})
}

// countReconciled returns the number of Queues that are ready and of WorkerPools with current metrics.
func (env Environment) countReconciled(ctx context.Context, c client.Reader) (queues, pools int, err error) {
	var allQueues v1alpha1.QueueList
	var allPools v1alpha1.WorkerPoolList
	for _, list := range []client.ObjectList{&allQueues, &allPools} {
		if err := c.List(ctx, list, client.InNamespace(string(env))); err != nil {
			return 0, 0, err
		}
	}
	for i := range allQueues.Items {
		queues += countTrue(allQueues.Items[i].Status.Conditions, v1alpha1.ConditionReady)
	}
	for i := range allPools.Items {
		active := meta.FindStatusCondition(allPools.Items[i].Status.Conditions, v1alpha1.ConditionScalingActive)
		if active != nil && active.Reason != v1alpha1.ReasonMetricsStale {
			pools++
		}
	}
	return queues, pools, nil
}

func countTrue(conditions []metav1.Condition, condition string) int {
	if meta.IsStatusConditionTrue(conditions, condition) {
		return 1
	}
	return 0
}

// DeleteObjects deletes the objects of the environment. It removes their finalizers first,
// because the operator no longer runs; the broker and its queues are removed separately.
func (env Environment) DeleteObjects(ctx context.Context, c client.Client) {
	if err := env.deleteAll(context.WithoutCancel(ctx), c); err != nil {
		fmt.Fprintln(os.Stderr, "bench: deleting the environment:", err)
	}
}

func (env Environment) deleteAll(ctx context.Context, c client.Client) error {
	var queues v1alpha1.QueueList
	var pools v1alpha1.WorkerPoolList
	for _, list := range []client.ObjectList{&queues, &pools} {
		if err := c.List(ctx, list, client.InNamespace(string(env))); err != nil {
			return err
		}
	}
	group, requests := errgroup.WithContext(ctx)
	group.SetLimit(CreateConcurrency)
	for i := range queues.Items {
		group.Go(func() error { return deleteWithoutFinalizers(requests, c, &queues.Items[i]) })
	}
	for i := range pools.Items {
		group.Go(func() error { return deleteWithoutFinalizers(requests, c, &pools.Items[i]) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return c.Delete(ctx, &corev1.Secret{ObjectMeta: env.ObjectMeta(brokerSecret)})
}

func deleteWithoutFinalizers(ctx context.Context, c client.Writer, o client.Object) error {
	none := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
	if err := c.Patch(ctx, o, none); err != nil {
		return client.IgnoreNotFound(err)
	}
	return client.IgnoreNotFound(c.Delete(ctx, o))
}
