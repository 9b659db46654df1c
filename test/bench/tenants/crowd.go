package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/clock"
	"github.com/yardmaster/yardmaster/test/bench/harness"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// unreachableBroker refuses connections.
const unreachableBroker = "nats://127.0.0.1:1"

// reconcileTimeout is the time that the operator has to reconcile all objects of a kind.
const reconcileTimeout = 30 * time.Minute

// kindOrder is the order in which the kinds are created: first what other kinds refer to.
var kindOrder = []string{"SessionRunner", "JobReport", "Policy", "Queue", "WorkerPool", "SequentialJob", "AgenticSession"}

// newObjects returns an object of each kind.
func newObjects(env harness.Environment, name string) map[string]client.Object {
	sequence := &v1alpha1.SequentialJob{ObjectMeta: env.ObjectMeta(name)}
	sequence.Spec.Containers = []v1alpha1.Step{{Name: "only", Container: corev1.Container{Name: "only", Image: "registry.example/tool:1"}}}
	sequence.Spec.Suspend = true
	session := &v1alpha1.AgenticSession{ObjectMeta: env.ObjectMeta(name)}
	session.Spec.Prompt, session.Spec.Runner, session.Spec.Suspend = "do it", name, true
	runner := &v1alpha1.SessionRunner{ObjectMeta: env.ObjectMeta(name)}
	runner.Spec.Image, testbuilder.RunnerPod(&runner.Spec).SecurityContext.RunAsUser = "registry.example/runner:1", new(int64(65532))
	return map[string]client.Object{
		"SessionRunner":  runner,
		"JobReport":      &v1alpha1.JobReport{ObjectMeta: env.ObjectMeta(name)},
		"Policy":         &v1alpha1.Policy{ObjectMeta: env.ObjectMeta(name)},
		"Queue":          env.NewQueue(name),
		"WorkerPool":     env.NewWorkerPool(name),
		"SequentialJob":  sequence,
		"AgenticSession": session,
	}
}

// createCrowd creates the objects of the first tenant, and waits until they are reconciled.
func (b *benchmark) createCrowd(ctx context.Context, c *harness.Cluster) error {
	if err := b.flood.CreateNamespace(ctx, c, unreachableBroker); err != nil {
		return err
	}
	for _, kind := range kindOrder {
		startedAt := time.Now()
		if err := b.createObjects(ctx, c, kind); err != nil {
			return err
		}
		created := time.Since(startedAt)
		if isReconciled(kind) {
			if err := b.waitUntilObserved(ctx, c, kind); err != nil {
				return fmt.Errorf("waiting for objects of kind %s: %w", kind, err)
			}
		}
		harness.PrintProgress("%d objects of kind %s are created after %s, and reconciled after %s", b.objects, kind,
			created.Round(time.Second), time.Since(startedAt).Round(time.Second))
	}
	return clock.SleepContext(ctx, b.settle)
}

// isReconciled reports whether a controller writes a status of the kind that observes its spec.
func isReconciled(kind string) bool { return kind != "SessionRunner" && kind != "JobReport" }

func (b *benchmark) createObjects(ctx context.Context, c client.Client, kind string) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(harness.CreateConcurrency)
	for i := range b.objects {
		group.Go(func() error { return c.Create(ctx, newObjects(b.flood, fmt.Sprintf("crowd-%05d", i))[kind]) })
	}
	return group.Wait()
}

// waitUntilObserved waits until each object of the kind has a status.
func (b *benchmark) waitUntilObserved(ctx context.Context, c client.Reader, kind string) error {
	reportedAt := time.Now()
	return harness.PollUntil(ctx, reconcileTimeout, func() (bool, error) {
		list, observed := listOf(kind), 0
		if err := c.List(ctx, list, client.InNamespace(string(b.flood))); err != nil {
			return true, err
		}
		for i := range list.Items {
			if observedGeneration(&list.Items[i]) > 0 {
				observed++
			}
		}
		if observed == b.objects {
			return true, nil
		}
		if time.Since(reportedAt) > 30*time.Second {
			reportedAt = time.Now()
			harness.PrintProgress("%d objects of kind %s are reconciled", observed, kind)
		}
		return false, clock.SleepContext(ctx, 2*time.Second) // lists of thousands of objects would add load to the control plane
	})
}

func listOf(kind string) *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind + "List"))
	return list
}

// observedGeneration returns the generation that the object's status was derived from.
func observedGeneration(object *unstructured.Unstructured) int64 {
	generation, _, _ := unstructured.NestedInt64(object.Object, "status", "observedGeneration")
	return generation
}

// createProbes creates the objects of the second tenant.
func (b *benchmark) createProbes(ctx context.Context, c *harness.Cluster, url string) error {
	if err := b.victim.CreateNamespace(ctx, c, url); err != nil {
		return err
	}
	crowd := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: string(b.flood)}}
	if err := client.IgnoreAlreadyExists(c.Create(ctx, crowd)); err != nil {
		return err
	}
	objects := newObjects(b.victim, probeName)
	for _, kind := range kindOrder {
		if err := c.Create(ctx, objects[kind]); err != nil {
			return err
		}
	}
	return nil
}
