package controller

import (
	"context"
	"fmt"
	"maps"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/sequentialjob"
)

// Observe implements kube.Kind.
func (r *Reconciler) Observe(ctx context.Context, sj *v1alpha1.SequentialJob) (*sequentialjob.Observation, error) {
	if !sequentialjob.IsManaged(sj) {
		r.endedJobs.Delete(sj) // otherwise they would accumulate
		return nil, nil
	}
	var cached batchv1.JobList
	// The objects belong to the cache and are never changed.
	if err := r.Client.List(ctx, &cached, client.InNamespace(sj.Namespace), client.MatchingFields{controllerIndex: string(sj.UID)}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing owned Jobs: %w", err)
	}
	policies, err := r.policies.Get(ctx, sj.Namespace)
	if err != nil {
		return nil, err
	}
	jobs, createdUIDs := r.createdJobs.merge(sj, jobPointers(cached.Items), r.Clock.Now())
	if _, found := r.endedJobs.Get(sj); found {
		r.endedJobs.Update(sj, func(ended *map[types.UID]*batchv1.Job) {
			maps.DeleteFunc(*ended, func(_ types.UID, job *batchv1.Job) bool {
				shown := len(jobs)
				jobs = sequentialjob.AddEnded(sj, jobs, createdUIDs, job)
				return len(jobs) == shown
			})
		})
		r.endedJobs.DeleteObjectIf(sj, func(ended map[types.UID]*batchv1.Job) bool { return len(ended) == 0 })
	}
	pods, evidence, err := r.observePods(ctx, sj, jobs)
	if err != nil {
		return nil, err
	}
	failing, _ := r.failures.Get(sj)
	stored, hasStored := r.stored.Get(sj)
	return &sequentialjob.Observation{
		SequentialJob: sj.DeepCopy(),
		Jobs:          jobs,
		Pods:          pods,
		Evidence:      evidence,
		CreatedJobs:   createdUIDs,
		HasStored:     hasStored && stored == sj.ResourceVersion,
		Policies:      policies.Select(sj.Labels),
		Now:           r.Clock.Now(),
		ArchiveImage:  r.options.ArchiveImage,
		Failure:       failing.reported,
		Answers: sequentialjob.Answers{
			JobsByName: map[string]*batchv1.Job{},
			PodsByJob:  map[types.UID][]corev1.Pod{},
			Warnings:   map[types.UID]string{},
			Claims:     map[string]*metav1.PartialObjectMetadata{},
		},
	}, nil
}

// observePods returns the Pods that have not ended of Jobs that have not ended, and the evidence of Jobs whose outcome is not recorded. The
// Pods belong to the cache.
func (r *Reconciler) observePods(ctx context.Context, sj *v1alpha1.SequentialJob, jobs []*batchv1.Job) ([]*corev1.Pod, map[types.UID]sequentialjob.Evidence, error) {
	var observed []*corev1.Pod
	evidenceOf := map[types.UID]sequentialjob.Evidence{}
	watched, _ := r.watchedJobs.Get(sj)
	if step := sequentialjob.EvidenceWithoutJob(sj); step != nil {
		evidence := r.evidence.of(step.JobUID)
		evidence.Watched = watched == step.JobUID
		evidenceOf[step.JobUID] = evidence
	}
	for _, job := range jobs {
		needsEvidence := sequentialjob.NeedsEvidence(sj, job)
		if sequentialjob.IsTerminal(job) && !needsEvidence {
			continue
		}
		var pods corev1.PodList
		if err := r.options.Pods.List(ctx, &pods, client.InNamespace(job.Namespace), client.MatchingFields{controllerIndex: string(job.UID)}, client.UnsafeDisableDeepCopy); err != nil {
			return nil, nil, fmt.Errorf("listing Pods of Job %s: %w", job.Name, err)
		}
		evidence := r.evidence.of(job.UID)
		evidence.Watched = watched == job.UID
		if needsEvidence {
			for i := range pods.Items {
				evidence.Observe(&pods.Items[i])
			}
		}
		evidenceOf[job.UID] = evidence
		for i := range pods.Items {
			if !needsEvidence && !decision.HasPodEnded(&pods.Items[i]) {
				observed = append(observed, &pods.Items[i])
			}
		}
	}
	return observed, evidenceOf, nil
}

func jobPointers(items []batchv1.Job) []*batchv1.Job {
	jobs := make([]*batchv1.Job, len(items))
	for i := range items {
		jobs[i] = &items[i]
	}
	return jobs
}
