package sequentialjob

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/sequence"
)

const (
	// dryRuns is how many dry-run requests one SequentialJob has under way at once.
	dryRuns = 4
	// A Job whose like the API server would have taken within triedFor is not tried
	// again: a burst of SequentialJobs from one template costs one dry run a step. Up to
	// triedShapes of them are remembered.
	triedFor    = time.Minute
	triedShapes = 4096
)

// observe gathers what is known of the SequentialJob without asking the API server.
func (r *Reconciler) observe(ctx context.Context, sj *v1alpha1.SequentialJob) (sequence.Input, error) {
	var cached batchv1.JobList
	// The objects are read, never changed: they may be the cache's own.
	if err := r.client.List(ctx, &cached, client.InNamespace(sj.Namespace), client.MatchingFields{controllerIndex: string(sj.UID)}, client.UnsafeDisableDeepCopy); err != nil {
		return sequence.Input{}, fmt.Errorf("listing owned Jobs: %w", err)
	}
	jobs := pointers(cached.Items)
	missing, created := r.created.of(sj, jobs, r.clock.Now())
	return sequence.Input{
		SequentialJob: sj.DeepCopy(),
		Jobs:          append(jobs, missing...),
		Created:       created,
		Now:           r.clock.Now(),
		Answers: sequence.Answers{
			Read: map[string]*batchv1.Job{},
			Pods: map[types.UID][]corev1.Pod{},
		},
	}, nil
}

// answer finds out what the core must know.
func (r *Reconciler) answer(ctx context.Context, in *sequence.Input, question *sequence.Question) error {
	switch {
	case question.JobNamed != "":
		return r.findJob(ctx, in, question.JobNamed)
	case question.PodsOf != nil:
		return r.findPods(ctx, in, question.PodsOf)
	case question.AllJobs:
		return r.listJobs(ctx, in)
	default:
		return r.dryRun(ctx, in, question.DryRun)
	}
}

// findJob reads one Job from the API server. A Job of that name which is not ours is as
// good as none: making ours will tell of the conflict.
func (r *Reconciler) findJob(ctx context.Context, in *sequence.Input, name string) error {
	job := &batchv1.Job{}
	err := r.live.Get(ctx, types.NamespacedName{Namespace: in.SequentialJob.Namespace, Name: name}, job)
	switch {
	case err == nil && sequence.IsOwned(in.SequentialJob, job):
		in.Answers.Read[name] = job
		r.created.add(in.SequentialJob, job, r.clock.Now())
	case err == nil, apierrors.IsNotFound(err):
		in.Answers.Read[name] = nil
	default:
		return fmt.Errorf("reading Job %s: %w", name, err)
	}
	return nil
}

func (r *Reconciler) findPods(ctx context.Context, in *sequence.Input, job *batchv1.Job) error {
	var pods corev1.PodList
	selector := client.MatchingLabels{batchv1.ControllerUidLabel: string(job.UID)}
	if err := r.live.List(ctx, &pods, client.InNamespace(job.Namespace), selector); err != nil {
		return fmt.Errorf("listing Pods of Job %s: %w", job.Name, err)
	}
	in.Answers.Pods[job.UID] = slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool {
		return !isControlledBy(&pod, job.UID)
	})
	return nil
}

// listJobs replaces what the cache shows by a live list.
func (r *Reconciler) listJobs(ctx context.Context, in *sequence.Input) error {
	var jobs batchv1.JobList
	selector := client.MatchingLabels{v1alpha1.LabelSequentialJobUID: string(in.SequentialJob.UID)}
	if err := r.live.List(ctx, &jobs, client.InNamespace(in.SequentialJob.Namespace), selector); err != nil {
		return fmt.Errorf("listing owned Jobs: %w", err)
	}
	in.Jobs = slices.DeleteFunc(pointers(jobs.Items), func(job *batchv1.Job) bool {
		return !sequence.IsOwned(in.SequentialJob, job)
	})
	in.Answers.Listed = true
	return nil
}

// dryRun tries the Jobs on the API server, with its admission and quotas, without
// making them.
func (r *Reconciler) dryRun(ctx context.Context, in *sequence.Input, jobs []*batchv1.Job) error {
	refusals := make([]*sequence.Refusal, len(jobs))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(dryRuns)
	for i, job := range jobs {
		group.Go(func() error {
			refusal, err := r.tryCreate(ctx, job)
			refusals[i] = refusal
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	in.Answers.DryRun = &sequence.DryRun{}
	for _, refusal := range refusals {
		if refusal != nil {
			in.Answers.DryRun.Refusals = append(in.Answers.DryRun.Refusals, *refusal)
		}
	}
	return nil
}

func (r *Reconciler) tryCreate(ctx context.Context, job *batchv1.Job) (*sequence.Refusal, error) {
	shape := sequence.Shape(job)
	if _, lately := r.tried.Get(shape); lately {
		return nil, nil
	}
	err := r.client.Create(ctx, job.DeepCopy(), client.DryRunAll)
	if apierrors.IsAlreadyExists(err) {
		return nil, nil // ours from a pass whose record was lost, or making it will tell
	}
	if err == nil {
		r.tried.Add(shape, struct{}{}, triedFor)
	}
	return refusalOf(err, job.Labels[v1alpha1.LabelStep], "trying Job "+job.Name)
}

func pointers(items []batchv1.Job) []*batchv1.Job {
	jobs := make([]*batchv1.Job, len(items))
	for i := range items {
		jobs[i] = &items[i]
	}
	return jobs
}
