package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/bench/harness"
)

// creators is how many requests at once make Jobs.
const creators = 32

// nobody manages the yard's Jobs: Kubernetes' own controller would be busy with them all
// the time that the scanner is measured.
const nobody = "bench.yardmaster.dev/nobody"

// yard is the namespaces and the Jobs in them.
type yard struct {
	jobs, namespaces int
}

func (y *yard) names() []string {
	var names []string
	for i := range y.namespaces {
		names = append(names, fmt.Sprintf("yard-%02d", i))
	}
	return names
}

// fill makes the Jobs, unless a run before this one has left them.
func (y *yard) fill(ctx context.Context, c *harness.Cluster) error {
	if list(ctx, c, y.names(), y.jobs) == nil {
		return nil
	}
	names := y.names()
	for _, name := range names {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := client.IgnoreAlreadyExists(c.Create(ctx, ns)); err != nil {
			return err
		}
	}
	var made atomic.Int64
	stop := progress(&made, y.jobs)
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(creators)
	for i := range y.jobs {
		group.Go(func() error {
			err := c.Create(ctx, job(names[i%len(names)], i))
			made.Add(1)
			return client.IgnoreAlreadyExists(err)
		})
	}
	return group.Wait()
}

// progress tells every ten seconds how many there are, until it is stopped.
func progress(made *atomic.Int64, of int) (stop func()) {
	ticker, done := time.NewTicker(10*time.Second), make(chan struct{})
	go func() {
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				fmt.Fprintf(os.Stderr, "  %d of %d Jobs are made\n", made.Load(), of)
			}
		}
	}()
	return func() { ticker.Stop(); close(done) }
}

// job is of the size that Jobs have: a command, an environment, resources, a volume.
func job(namespace string, i int) *batchv1.Job {
	environment := []corev1.EnvVar{{Name: "JOB_NUMBER", Value: strconv.Itoa(i)}}
	for _, name := range []string{"DATABASE_URL", "BUCKET", "REGION", "LOG_LEVEL"} {
		environment = append(environment, corev1.EnvVar{Name: name, Value: strings.ToLower(name) + ".example"})
	}
	requests := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")}
	labels := map[string]string{"app.kubernetes.io/name": "report", "app.kubernetes.io/part-of": "warehouse", "team": namespace}
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("job-%06d", i), Namespace: namespace, Labels: labels},
		Spec: batchv1.JobSpec{
			ManagedBy:    new(nobody),
			BackoffLimit: new(int32(3)),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					RestartPolicy: corev1.RestartPolicyNever,
					Containers: []corev1.Container{{
						Name: "main", Image: "registry.example/warehouse/report:1.2.3",
						Command: []string{"report", "--from", "yesterday"}, Env: environment,
						Resources:    corev1.ResourceRequirements{Requests: requests},
						VolumeMounts: []corev1.VolumeMount{{Name: "scratch", MountPath: "/scratch"}},
					}},
					Volumes: []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
				},
			},
		},
	}
}

// clearReports deletes what scans have written.
func (y *yard) clearReports(ctx context.Context, c *harness.Cluster) error {
	for _, name := range y.names() {
		if err := c.DeleteAllOf(ctx, &v1alpha1.JobReport{}, client.InNamespace(name)); err != nil {
			return err
		}
	}
	return nil
}
