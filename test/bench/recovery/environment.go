package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/bench/harness"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// environment is a namespace in which objects of all kinds are created.
type environment struct {
	harness.Environment
	createdCount int
}

// createObjects creates the namespace. Its broker is unreachable, but all controllers report
// that in the status of their objects.
func (env *environment) createObjects(ctx context.Context, c client.Client) error {
	if err := env.CreateNamespace(ctx, c, "nats://127.0.0.1:1"); err != nil {
		return err
	}
	runner := &v1alpha1.SessionRunner{ObjectMeta: env.ObjectMeta("default")}
	runner.Spec.Image, testbuilder.RunnerPod(&runner.Spec).SecurityContext.RunAsUser = "registry.example/runner:1", new(int64(65532))
	return c.Create(ctx, runner)
}

// newObject is an object to create, and how to observe that it was reconciled.
type newObject struct {
	kind   string
	object client.Object
	list   client.ObjectList
	// observedGeneration returns the generation that the object's controller has observed.
	observedGeneration func(client.Object) int64
}

// newObjects returns one object of each kind that the operator watches.
func (env *environment) newObjects() []newObject {
	env.createdCount++
	name := fmt.Sprintf("new-%03d", env.createdCount)
	sequence := &v1alpha1.SequentialJob{ObjectMeta: env.ObjectMeta(name)}
	sequence.Spec.Template = &v1alpha1.PodTemplate{PodTemplateSpec: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"sim.localcluster.dev/duration": "1s"}}}}
	sequence.Spec.Containers = []v1alpha1.Step{{Name: "only", Container: corev1.Container{Name: "only", Image: "registry.example/tool:1", Command: []string{"run"}}}}
	session := &v1alpha1.AgenticSession{ObjectMeta: env.ObjectMeta(name)}
	session.Spec.Prompt = "do it"
	return []newObject{
		{"SequentialJob", sequence, &v1alpha1.SequentialJobList{}, func(o client.Object) int64 {
			return o.(*v1alpha1.SequentialJob).Status.ObservedGeneration //nolint:forcetypeassert // the watch returns only this kind
		}},
		{"Queue", env.NewQueue(name), &v1alpha1.QueueList{}, func(o client.Object) int64 {
			return o.(*v1alpha1.Queue).Status.ObservedGeneration //nolint:forcetypeassert // the watch returns only this kind
		}},
		{"WorkerPool", env.NewWorkerPool(name), &v1alpha1.WorkerPoolList{}, func(o client.Object) int64 {
			return o.(*v1alpha1.WorkerPool).Status.ObservedGeneration //nolint:forcetypeassert // the watch returns only this kind
		}},
		{"Policy", &v1alpha1.Policy{ObjectMeta: env.ObjectMeta(name)}, &v1alpha1.PolicyList{}, func(o client.Object) int64 {
			return o.(*v1alpha1.Policy).Status.ObservedGeneration //nolint:forcetypeassert // the watch returns only this kind
		}},
		{"AgenticSession", session, &v1alpha1.AgenticSessionList{}, func(o client.Object) int64 {
			return o.(*v1alpha1.AgenticSession).Status.ObservedGeneration //nolint:forcetypeassert // the watch returns only this kind
		}},
	}
}
