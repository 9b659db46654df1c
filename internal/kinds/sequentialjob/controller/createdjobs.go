package controller

import (
	"maps"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kube"
)

// maxCacheLag is how long a created Job that the cache does not show is assumed to exist, before a live read.
const maxCacheLag = 5 * time.Second

// createdJobs remembers the Jobs of each SequentialJob that the API server created or returned and whose UIDs the
// status does not record. A Job that is deleted before its UID is recorded is then known to be lost, and is not created
// again.
type createdJobs struct {
	*kube.Store[map[string]createdJob]
}

type createdJob struct {
	job *batchv1.Job
	// createdTime is zero once the cache has shown the Job.
	createdTime time.Time
}

func newCreatedJobs() *createdJobs {
	return &createdJobs{kube.NewStore[map[string]createdJob]()}
}

func (c *createdJobs) add(sj *v1alpha1.SequentialJob, job *batchv1.Job, now time.Time) {
	c.Update(sj, func(jobs *map[string]createdJob) {
		if *jobs == nil {
			*jobs = map[string]createdJob{}
		}
		if known, found := (*jobs)[job.Name]; !found || known.job.UID != job.UID { // another process may have created it again
			job = job.DeepCopy()
			// The template is most of a Job's size.
			job.Spec.Template = corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: job.Spec.Template.Spec.RestartPolicy}}
			job.ManagedFields = nil
			(*jobs)[job.Name] = createdJob{job: job, createdTime: now}
		}
	})
}

// merge returns the cached Jobs and recently created Jobs that the cache does not show yet, and the UIDs of all
// remembered Jobs, by name.
func (c *createdJobs) merge(sj *v1alpha1.SequentialJob, cached []*batchv1.Job, now time.Time) (merged []*batchv1.Job, uids map[string]types.UID) {
	merged, uids = cached, map[string]types.UID{}
	c.Update(sj, func(jobs *map[string]createdJob) {
		for name, created := range *jobs {
			uids[name] = created.job.UID
			isShown := slices.ContainsFunc(cached, func(job *batchv1.Job) bool { return job.UID == created.job.UID })
			switch {
			case isShown: // from now on, a Job that the cache does not show was deleted
				(*jobs)[name] = createdJob{job: created.job}
			case now.Sub(created.createdTime) < maxCacheLag:
				merged = append(merged, created.job)
			}
		}
	})
	return merged, uids
}

func (c *createdJobs) markObserved(job *batchv1.Job) {
	owner := ownerOf(job)
	if owner == nil {
		return
	}
	if jobs, _ := c.Get(owner); len(jobs) == 0 {
		return
	}
	c.Update(owner, func(jobs *map[string]createdJob) {
		if created, found := (*jobs)[job.Name]; found && created.job.UID == job.UID {
			(*jobs)[job.Name] = createdJob{job: created.job}
		}
	})
}

// ownerOf returns the identity of the SequentialJob that controls the Job; nil for other Jobs.
func ownerOf(job *batchv1.Job) *metav1.PartialObjectMetadata {
	owner := metav1.GetControllerOf(job)
	if owner == nil || owner.Kind != "SequentialJob" || owner.APIVersion != v1alpha1.GroupVersion.String() {
		return nil
	}
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Name: owner.Name, UID: owner.UID}}
}

// forgetRecorded forgets all Jobs except Jobs of running steps for which the stored status has no UID.
func (c *createdJobs) forgetRecorded(sj *v1alpha1.SequentialJob) {
	c.Update(sj, func(jobs *map[string]createdJob) {
		maps.DeleteFunc(*jobs, func(name string, _ createdJob) bool {
			return !slices.ContainsFunc(sj.Status.Steps, func(step v1alpha1.StepStatus) bool {
				isRunning := step.Phase == v1alpha1.StepRunning || step.Phase == v1alpha1.StepStarting || step.Phase == v1alpha1.StepQueued
				return isRunning && step.JobName == name && step.JobUID == ""
			})
		})
	})
}
