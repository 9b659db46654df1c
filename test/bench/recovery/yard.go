package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/bench/harness"
)

// yard is where objects of all kinds are made, one after another.
type yard struct {
	harness.Yard
	made int
}

// open makes the namespace. Its broker answers nobody, which keeps no controller from saying so.
func (y *yard) open(ctx context.Context, c client.Client) error {
	if err := y.Open(ctx, c, "nats://127.0.0.1:1"); err != nil {
		return err
	}
	runner := &v1alpha1.SessionRunner{ObjectMeta: y.Object("default")}
	runner.Spec.Image, runner.Spec.RunAsUser = "registry.example/runner:1", new(int64(65532))
	return c.Create(ctx, runner)
}

// probe is a new object, and what watches it.
type probe struct {
	kind   string
	object client.Object
	list   client.ObjectList
	// reconciled is the generation that its controller has told of.
	reconciled func(client.Object) int64
}

// probes are one of each kind that is watched.
func (y *yard) probes() []probe {
	y.made++
	name := fmt.Sprintf("new-%03d", y.made)
	sequence := &v1alpha1.SequentialJob{ObjectMeta: y.Object(name)}
	sequence.Spec.Template = &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"sim.localcluster.dev/duration": "1s"}}}
	sequence.Spec.Containers = []v1alpha1.Step{{Name: "only", Container: corev1.Container{Name: "only", Image: "registry.example/tool:1", Command: []string{"run"}}}}
	session := &v1alpha1.AgenticSession{ObjectMeta: y.Object(name)}
	session.Spec.Prompt = "do it"
	return []probe{
		{"SequentialJob", sequence, &v1alpha1.SequentialJobList{}, func(o client.Object) int64 {
			return o.(*v1alpha1.SequentialJob).Status.ObservedGeneration //nolint:forcetypeassert // it watches this kind
		}},
		{"Queue", y.Queue(name), &v1alpha1.QueueList{}, func(o client.Object) int64 {
			return o.(*v1alpha1.Queue).Status.ObservedGeneration //nolint:forcetypeassert // it watches this kind
		}},
		{"WorkerPool", y.Pool(name), &v1alpha1.WorkerPoolList{}, func(o client.Object) int64 {
			return o.(*v1alpha1.WorkerPool).Status.ObservedGeneration //nolint:forcetypeassert // it watches this kind
		}},
		{"Policy", &v1alpha1.Policy{ObjectMeta: y.Object(name)}, &v1alpha1.PolicyList{}, func(o client.Object) int64 {
			return o.(*v1alpha1.Policy).Status.ObservedGeneration //nolint:forcetypeassert // it watches this kind
		}},
		{"AgenticSession", session, &v1alpha1.AgenticSessionList{}, func(o client.Object) int64 {
			return o.(*v1alpha1.AgenticSession).Status.ObservedGeneration //nolint:forcetypeassert // it watches this kind
		}},
	}
}
