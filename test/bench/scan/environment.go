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

// createConcurrency is how many requests at once make Jobs.
const createConcurrency = 32

// unusedJobManager manages the yard's Jobs: Kubernetes' own controller would be busy with them all
// the time that the scanner is measured.
const unusedJobManager = "bench.yardmaster.dev/nobody"

// environment is the namespaces and the Jobs in them.
type environment struct {
	jobs, namespaces int
}

func (env *environment) namespaceNames() []string {
	var names []string
	for i := range env.namespaces {
		names = append(names, fmt.Sprintf("yard-%02d", i))
	}
	return names
}

// createJobs makes the Jobs, unless a run before this one has left them.
func (env *environment) createJobs(ctx context.Context, c *harness.Cluster) error {
	if listAllJobs(ctx, c, env.namespaceNames(), env.jobs) == nil {
		return nil
	}
	names := env.namespaceNames()
	for _, name := range names {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := client.IgnoreAlreadyExists(c.Create(ctx, ns)); err != nil {
			return err
		}
	}
	var made atomic.Int64
	stop := printProgress(&made, env.jobs)
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(createConcurrency)
	for i := range env.jobs {
		group.Go(func() error {
			err := c.Create(ctx, newJob(names[i%len(names)], i))
			made.Add(1)
			return client.IgnoreAlreadyExists(err)
		})
	}
	return group.Wait()
}

// printProgress tells every ten seconds how many there are, until it is stopped.
func printProgress(made *atomic.Int64, of int) (stop func()) {
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

// newJob is of the size that Jobs have: a command, an environment, resources, a volume.
func newJob(namespace string, i int) *batchv1.Job {
	environment := []corev1.EnvVar{{Name: "JOB_NUMBER", Value: strconv.Itoa(i)}}
	for _, name := range []string{"DATABASE_URL", "BUCKET", "REGION", "LOG_LEVEL"} {
		environment = append(environment, corev1.EnvVar{Name: name, Value: strings.ToLower(name) + ".example"})
	}
	requests := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")}
	labels := map[string]string{"app.kubernetes.io/name": "report", "app.kubernetes.io/part-of": "warehouse", "team": namespace}
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("job-%06d", i), Namespace: namespace, Labels: labels},
		Spec: batchv1.JobSpec{
			ManagedBy:    new(unusedJobManager),
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

// deleteReports deletes what scans have written.
func (env *environment) deleteReports(ctx context.Context, c *harness.Cluster) error {
	for _, name := range env.namespaceNames() {
		if err := c.DeleteAllOf(ctx, &v1alpha1.JobReport{}, client.InNamespace(name)); err != nil {
			return err
		}
	}
	return nil
}
