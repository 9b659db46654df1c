package main

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// creators is how many requests at once bring the load in.
const creators = 16

// The labels by which the observer knows whose Job it sees.
const (
	labelSequence = "bench.yardmaster.dev/sequence"
	labelStep     = "bench.yardmaster.dev/step"
)

// load is what is run: so many sequences at once of so many steps. A simulated Pod runs
// for 100 ms.
type load struct{ sequences, steps int }

func (l load) jobs() int { return l.sequences * l.steps }

func sequenceName(i int) string { return fmt.Sprintf("s%04d", i) }
func stepName(i int) string     { return fmt.Sprintf("step-%d", i) }

func container(step int) corev1.Container {
	return corev1.Container{Name: stepName(step), Image: "registry.example/tool:1", Command: []string{"run"}}
}

// sequentialJob is one of the load's sequences for the operator.
func (l load) sequentialJob(i int, ns string) *v1alpha1.SequentialJob {
	sj := &v1alpha1.SequentialJob{ObjectMeta: metav1.ObjectMeta{Name: sequenceName(i), Namespace: ns}}
	for step := range l.steps {
		sj.Spec.Containers = append(sj.Spec.Containers, v1alpha1.Step{Name: stepName(step), Container: container(step)})
	}
	return sj
}

// job is one step for the bare loop.
func job(sequence string, step int, ns string) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name: sequence + "-" + stepName(step), Namespace: ns,
			Labels: map[string]string{labelSequence: sequence, labelStep: stepName(step)},
		},
		Spec: batchv1.JobSpec{
			BackoffLimit: new(int32(0)),
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever,
				Containers:    []corev1.Container{container(step)},
			}},
		},
	}
}

// bringIn makes one object for each sequence.
func (l load) bringIn(ctx context.Context, c client.Client, object func(i int) client.Object) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(creators)
	for i := range l.sequences {
		group.Go(func() error { return c.Create(ctx, object(i)) })
	}
	return group.Wait()
}
