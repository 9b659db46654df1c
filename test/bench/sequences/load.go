package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// createConcurrency is how many requests at once bring the load in.
const createConcurrency = 16

// The labels by which the observer knows whose Job it sees.
const (
	labelSequence = "bench.yardmaster.dev/sequence"
	labelStep     = "bench.yardmaster.dev/step"
)

// sequenceLoad is what is run: so many sequences at once, of so many steps that take so long.
type sequenceLoad struct {
	sequences, steps int
	// stepDuration of a step on average. A sequence's are all the same, between half of
	// that and half more: all sequences ending at once would be a load of its own.
	stepDuration time.Duration
}

// parseLoad reads "100x10s".
func parseLoad(text string, steps int) (sequenceLoad, error) {
	sequences, duration, found := strings.Cut(text, "x")
	if !found {
		return sequenceLoad{}, fmt.Errorf("%q is not of the form SEQUENCESxSTEPDURATION", text)
	}
	l := sequenceLoad{steps: steps}
	var err error
	if l.sequences, err = strconv.Atoi(sequences); err != nil {
		return sequenceLoad{}, err
	}
	l.stepDuration, err = time.ParseDuration(duration)
	return l, err
}

func (l sequenceLoad) String() string {
	return fmt.Sprintf("%d sequences of %d steps of %s", l.sequences, l.steps, l.stepDuration)
}

// stepDurationOf is how long the steps of a sequence take: the same in every measurement.
func (l sequenceLoad) stepDurationOf(sequence int) time.Duration {
	if l.sequences == 1 {
		return l.stepDuration
	}
	return l.stepDuration/2 + l.stepDuration*time.Duration(sequence)/time.Duration(l.sequences)
}

// podMetadata tells the simulated node how long the Pod runs.
func (l sequenceLoad) podMetadata(sequence int) metav1.ObjectMeta {
	return metav1.ObjectMeta{Annotations: map[string]string{"sim.localcluster.dev/duration": l.stepDurationOf(sequence).String()}}
}

func (l sequenceLoad) jobCount() int { return l.sequences * l.steps }

func sequenceName(i int) string { return fmt.Sprintf("s%04d", i) }
func stepName(i int) string     { return fmt.Sprintf("step-%d", i) }

func newContainer(step int) corev1.Container {
	return corev1.Container{Name: stepName(step), Image: "registry.example/tool:1", Command: []string{"run"}}
}

// newSequentialJob is one of the load's sequences for the operator.
func (l sequenceLoad) newSequentialJob(i int, ns string) *v1alpha1.SequentialJob {
	sj := &v1alpha1.SequentialJob{ObjectMeta: metav1.ObjectMeta{Name: sequenceName(i), Namespace: ns}}
	sj.Spec.Template = &corev1.PodTemplateSpec{ObjectMeta: l.podMetadata(i)}
	for step := range l.steps {
		sj.Spec.Containers = append(sj.Spec.Containers, v1alpha1.Step{Name: stepName(step), Container: newContainer(step)})
	}
	return sj
}

// newJob is one step for the bare loop.
func (l sequenceLoad) newJob(sequence, step int, ns string) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name: sequenceName(sequence) + "-" + stepName(step), Namespace: ns,
			Labels: map[string]string{labelSequence: strconv.Itoa(sequence), labelStep: strconv.Itoa(step)},
		},
		Spec: batchv1.JobSpec{
			BackoffLimit: new(int32(0)),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: l.podMetadata(sequence),
				Spec: corev1.PodSpec{
					RestartPolicy: corev1.RestartPolicyNever,
					Containers:    []corev1.Container{newContainer(step)},
				},
			},
		},
	}
}

// createObjects makes one object for each sequence.
func (l sequenceLoad) createObjects(ctx context.Context, c client.Client, object func(i int) client.Object) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(createConcurrency)
	for i := range l.sequences {
		group.Go(func() error { return c.Create(ctx, object(i)) })
	}
	return group.Wait()
}
