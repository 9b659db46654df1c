package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/sequentialjob"
	"github.com/yardmaster/yardmaster/internal/kube"
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
	return &sequentialjob.Observation{
		SequentialJob: sj.DeepCopy(),
		Jobs:          jobs,
		Pods:          pods,
		Evidence:      evidence,
		CreatedJobs:   createdUIDs,
		Policies:      policies.Select(sj.Labels),
		Now:           r.Clock.Now(),
		ArchiveImage:  r.options.ArchiveImage,
		Failure:       r.reportedFailure(sj),
		Answers: sequentialjob.Answers{
			JobsByName: map[string]*batchv1.Job{},
			PodsByJob:  map[types.UID][]corev1.Pod{},
			Warnings:   map[types.UID]string{},
			Claims:     map[string]*metav1.PartialObjectMetadata{},
		},
	}, nil
}

// Answer implements kube.Kind.
func (r *Reconciler) Answer(ctx context.Context, observation *sequentialjob.Observation, decision *sequentialjob.Decision) (bool, error) {
	question := decision.Question
	if question == nil {
		return false, nil
	}
	return true, r.answer(ctx, observation, question)
}

func (r *Reconciler) answer(ctx context.Context, observation *sequentialjob.Observation, question *sequentialjob.Question) error {
	switch {
	case question.JobNamed != "":
		return r.readJob(ctx, observation, question.JobNamed)
	case question.PodsOf != nil:
		return r.listPods(ctx, observation, question.PodsOf)
	case question.WarningsOf != "":
		message, err := r.warnings.newest(ctx, observation.SequentialJob.Namespace, question.WarningsOf)
		observation.Answers.Warnings[question.WarningsOf] = message
		return err
	case question.AllJobs:
		return r.listJobs(ctx, observation)
	case question.Claim != "":
		return r.readClaim(ctx, observation, question.Claim)
	case question.ApprovalPolicies:
		problem, err := r.options.ApprovalPolicies.Problem(ctx)
		observation.Answers.UnprotectedApprovals = &problem
		return err
	default:
		return r.dryRun(ctx, observation, question)
	}
}

// readJob reads a Job from the API server. A Job of another owner counts as absent: creating our Job then reports the
// conflict.
func (r *Reconciler) readJob(ctx context.Context, observation *sequentialjob.Observation, name string) error {
	job, err := kube.GetIfExists(ctx, r.Live, observation.SequentialJob.Namespace, name, &batchv1.Job{})
	if err != nil {
		return err
	}
	if job != nil && !metav1.IsControlledBy(job, observation.SequentialJob) {
		job = nil
	}
	observation.Answers.JobsByName[name] = job
	// A Job that archives logs is created again under the same name if it was lost, so its UID is not remembered.
	if archive := observation.SequentialJob.Status.Archive; job != nil && (archive == nil || archive.JobName != name) {
		r.createdJobs.add(observation.SequentialJob, job, r.Clock.Now())
	}
	return nil
}

func (r *Reconciler) readClaim(ctx context.Context, observation *sequentialjob.Observation, name string) error {
	claim, err := kube.ReadMetadata(ctx, r.Live, corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), observation.SequentialJob.Namespace, name)
	if err != nil {
		return err
	}
	observation.Answers.Claims[name] = claim
	return nil
}

func (r *Reconciler) listPods(ctx context.Context, observation *sequentialjob.Observation, job *batchv1.Job) error {
	var pods corev1.PodList
	selector := client.MatchingLabels{batchv1.ControllerUidLabel: string(job.UID)}
	if err := r.Live.List(ctx, &pods, client.InNamespace(job.Namespace), selector); err != nil {
		return fmt.Errorf("listing Pods of Job %s: %w", job.Name, err)
	}
	observed := slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return !metav1.IsControlledBy(&pod, job) })
	r.evidence.observeUnended(observed)
	observation.Answers.PodsByJob[job.UID] = observed
	return nil
}

func (r *Reconciler) listJobs(ctx context.Context, observation *sequentialjob.Observation) error {
	var jobs batchv1.JobList
	selector := client.MatchingLabels{v1alpha1.LabelSequentialJobUID: string(observation.SequentialJob.UID)}
	if err := r.Live.List(ctx, &jobs, client.InNamespace(observation.SequentialJob.Namespace), selector); err != nil {
		return fmt.Errorf("listing owned Jobs: %w", err)
	}
	observation.AnswerAllJobs(slices.DeleteFunc(jobPointers(jobs.Items), func(job *batchv1.Job) bool {
		return !metav1.IsControlledBy(job, observation.SequentialJob)
	}))
	return nil
}

func jobPointers(items []batchv1.Job) []*batchv1.Job {
	jobs := make([]*batchv1.Job, len(items))
	for i := range items {
		jobs[i] = &items[i]
	}
	return jobs
}
