package controller

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/sequentialjob"
	"github.com/yardmaster/yardmaster/internal/kube"
)

const (
	// maxConcurrentDryRuns is the number of Jobs of one SequentialJob that are tried at the same time.
	maxConcurrentDryRuns = 4
	// An accepted Job is not tried again within acceptedFor, so that a burst of SequentialJobs from one template costs
	// one dry run of each step. Up to maxAccepted fingerprints are remembered.
	acceptedFor = time.Minute
	maxAccepted = 4096
)

// Answer implements kube.Kind.
func (r *Reconciler) Answer(ctx context.Context, observation *sequentialjob.Observation, decision *sequentialjob.Decision) (bool, error) {
	answers, namespace := &observation.Answers, observation.SequentialJob.Namespace
	switch question := decision.Question; {
	case question == nil:
		return false, nil
	case question.JobNamed != "":
		return true, r.readJob(ctx, observation, question.JobNamed)
	case question.PodsOf != nil:
		return true, r.listPods(ctx, observation, question.PodsOf)
	case question.WarningsOf != "":
		message, err := r.warnings.newest(ctx, namespace, question.WarningsOf)
		answers.Warnings[question.WarningsOf] = message
		return true, err
	case question.AllJobs:
		return true, r.listJobs(ctx, observation)
	case question.Claim != "":
		claim, err := kube.ReadMetadata(ctx, r.Live, corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), namespace, question.Claim)
		answers.Claims[question.Claim] = claim
		return true, err
	case question.ApprovalPolicies:
		problem, err := r.options.ApprovalPolicies.Problem(ctx)
		answers.UnprotectedApprovals = &problem
		return true, err
	default:
		return true, r.dryRun(ctx, observation, question)
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

func (r *Reconciler) listPods(ctx context.Context, observation *sequentialjob.Observation, job *batchv1.Job) error {
	var pods corev1.PodList
	selector := client.MatchingLabels{batchv1.ControllerUidLabel: string(job.UID)}
	if err := r.Live.List(ctx, &pods, client.InNamespace(job.Namespace), selector); err != nil {
		return fmt.Errorf("listing Pods of Job %s: %w", job.Name, err)
	}
	observed := slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool {
		isOrphan := job.ResourceVersion == "" && metav1.GetControllerOf(&pod) == nil
		return !isOrphan && !metav1.IsControlledBy(&pod, job)
	})
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

// dryRun creates the Jobs and their Pods in a dry run, which includes admission and quotas. The first Job is tried
// before the others: once its metadata is accepted, other Jobs of which only the same metadata is new are not tried.
func (r *Reconciler) dryRun(ctx context.Context, observation *sequentialjob.Observation, question *sequentialjob.Question) error {
	jobs := question.DryRun
	refusals := make([]*decision.Refusal, len(jobs))
	first := sequentialjob.FingerprintOf(jobs[0])
	metadata := "" // metadata that the creation of the first Job tries
	if question.FirstFollows && r.isAccepted(first.Content) {
		metadata = first.Metadata
	}
	var err error
	if refusals[0], err = r.dryRunStep(ctx, jobs[0], metadata); err != nil {
		return err
	}
	// The first error does not cancel other requests, because client-go logs each canceled request.
	var group errgroup.Group
	var failed atomic.Bool
	group.SetLimit(maxConcurrentDryRuns)
	for i, job := range jobs[1:] {
		group.Go(func() (err error) {
			if !failed.Load() {
				refusals[i+1], err = r.dryRunStep(ctx, job, metadata)
				failed.CompareAndSwap(false, err != nil)
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	observation.Answers.DryRun = &sequentialjob.DryRunResult{}
	for _, refusal := range refusals {
		if refusal != nil {
			observation.Answers.DryRun.Refusals = append(observation.Answers.DryRun.Refusals, *refusal)
		}
	}
	return nil
}

func (r *Reconciler) isAccepted(fingerprint string) bool {
	_, found := r.accepted.Get(fingerprint)
	return found
}

// dryRunStep tries the Job of a step, and the Pod that the Job controller would create for it, unless their fingerprint
// was accepted. It does not try metadata with the fingerprint ignoredMetadata. If only the metadata is new, it does not
// try the Pod, because the admission of Pods in Kubernetes itself does not depend on metadata.
func (r *Reconciler) dryRunStep(ctx context.Context, job *batchv1.Job, ignoredMetadata string) (*decision.Refusal, error) {
	fingerprint := sequentialjob.FingerprintOf(job)
	contentAccepted := r.isAccepted(fingerprint.Content)
	if contentAccepted && (fingerprint.Metadata == ignoredMetadata || r.isAccepted(fingerprint.Metadata)) {
		return nil, nil
	}
	created := job.DeepCopy()
	err := r.Client.Create(ctx, created, client.DryRunAll)
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil, nil // an earlier reconciliation created it, or creating it reports the conflict
	case err != nil:
		return kube.AsRefusal(err, decision.Refusal{Kind: "Job", Name: job.Name, Step: job.Labels[v1alpha1.LabelStep]})
	}
	if !contentAccepted {
		if refusal, err := r.dryRunPod(ctx, created); refusal != nil || err != nil {
			return refusal, err
		}
	}
	r.accepted.Add(fingerprint.Content, struct{}{}, acceptedFor)
	r.accepted.Add(fingerprint.Metadata, struct{}{}, acceptedFor)
	return nil, nil
}

// dryRunPod tries the Pod of a Job that the API server returned. Without the permission to create Pods, it accepts all.
func (r *Reconciler) dryRunPod(ctx context.Context, job *batchv1.Job) (*decision.Refusal, error) {
	pod := sequentialjob.PodOf(job)
	refused := decision.Refusal{Kind: "Pod", Name: pod.GenerateName, Step: job.Labels[v1alpha1.LabelStep]}
	err := r.Client.Create(ctx, pod, client.DryRunAll)
	switch decision.ClassOf(err) {
	case decision.PermissionMissing:
		return nil, nil
	case decision.ServiceAccountMissing:
		if pod.Spec.ServiceAccountName == "" {
			return nil, nil // a new namespace gets its default ServiceAccount in a moment
		}
	case decision.QuotaExceeded:
		if sequentialjob.IsHeldByQueue(job) {
			return nil, nil // its Pod is created later, when the queue expects room
		}
	}
	return kube.AsRefusal(err, refused)
}
