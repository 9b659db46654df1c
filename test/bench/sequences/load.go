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
	"github.com/yardmaster/yardmaster/test/bench/harness"
)

// Labels that identify the sequence and the step of a Job of the bare loop.
const (
	labelSequence = "bench.yardmaster.dev/sequence"
	labelStep     = "bench.yardmaster.dev/step"
)

// sequenceLoad is a number of concurrent sequences, their number of steps, and the duration of the steps.
type sequenceLoad struct {
	sequences, steps int
	// stepDuration is the average duration of a step. The steps of one sequence have equal durations, from half to one and a half times the
	// average across sequences, because sequences that all end together would cause a load peak.
	stepDuration time.Duration
}

// parseLoad parses a load such as "100x10s".
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

// stepDurationOf returns the duration of the steps of a sequence. It is the same in every measurement.
func (l sequenceLoad) stepDurationOf(sequence int) time.Duration {
	if l.sequences == 1 {
		return l.stepDuration
	}
	return l.stepDuration/2 + l.stepDuration*time.Duration(sequence)/time.Duration(l.sequences)
}

// podMetadata returns metadata from which simulated nodes read how long the Pod runs.
func (l sequenceLoad) podMetadata(sequence int) metav1.ObjectMeta {
	return metav1.ObjectMeta{Annotations: map[string]string{"sim.localcluster.dev/duration": l.stepDurationOf(sequence).String()}}
}

func (l sequenceLoad) jobCount() int { return l.sequences * l.steps }

func sequenceName(i int) string { return fmt.Sprintf("s%04d", i) }
func stepName(i int) string     { return fmt.Sprintf("step-%d", i) }

func newContainer(step int) corev1.Container {
	return corev1.Container{Name: stepName(step), Image: "registry.example/tool:1", Command: []string{"run"}}
}

func (l sequenceLoad) newSequentialJob(i int, ns string) *v1alpha1.SequentialJob {
	sj := &v1alpha1.SequentialJob{ObjectMeta: metav1.ObjectMeta{Name: sequenceName(i), Namespace: ns}}
	sj.Spec.Template = &v1alpha1.PodTemplate{PodTemplateSpec: corev1.PodTemplateSpec{ObjectMeta: l.podMetadata(i)}}
	for step := range l.steps {
		sj.Spec.Containers = append(sj.Spec.Containers, v1alpha1.Step{Name: stepName(step), Container: newContainer(step)})
	}
	return sj
}

// newJob returns one step for the bare loop.
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
				Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{newContainer(step)}},
			},
		},
	}
}

func (l sequenceLoad) createObjects(ctx context.Context, c client.Client, object func(i int) client.Object) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(harness.CreateConcurrency)
	for i := range l.sequences {
		group.Go(func() error { return c.Create(ctx, object(i)) })
	}
	return group.Wait()
}
