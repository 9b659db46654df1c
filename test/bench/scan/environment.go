package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/bench/harness"
)

// createConcurrency is the number of concurrent requests that create Jobs.
const createConcurrency = 32

// unusedJobManager is the managedBy of the Jobs. Otherwise the Job controller of Kubernetes would add load while the scanner is measured.
const unusedJobManager = "bench.yardmaster.dev/nobody"

// environment is the number of Jobs and of the namespaces that contain them.
type environment struct {
	jobs, namespaces int
}

func (env *environment) namespaceNames() []string {
	var names []string
	for i := range env.namespaces {
		names = append(names, fmt.Sprintf("bench-scan-%02d", i))
	}
	return names
}

// createJobs creates the Jobs, unless they exist from an earlier run.
func (env *environment) createJobs(ctx context.Context, c *harness.Cluster) error {
	names := env.namespaceNames()
	if listAllJobs(ctx, c, names, env.jobs) == nil {
		return nil
	}
	for _, name := range names {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := client.IgnoreAlreadyExists(c.Create(ctx, ns)); err != nil {
			return err
		}
	}
	var made atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(createConcurrency)
	for i := range env.jobs {
		group.Go(func() error {
			err := c.Create(ctx, newJob(names[i%len(names)], i))
			if n := made.Add(1); n%1000 == 0 {
				harness.PrintProgress("%d of %d Jobs created", n, env.jobs)
			}
			return client.IgnoreAlreadyExists(err)
		})
	}
	return group.Wait()
}

// newJob returns a Job of typical size, with a command, an environment, resources and a volume.
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

// deleteReports deletes the JobReports of earlier scans.
func (env *environment) deleteReports(ctx context.Context, c *harness.Cluster) error {
	for _, name := range env.namespaceNames() {
		if err := c.DeleteAllOf(ctx, &v1alpha1.JobReport{}, client.InNamespace(name)); err != nil {
			return err
		}
	}
	return nil
}
