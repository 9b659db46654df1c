package controller

import (
	"context"
	"fmt"
	"maps"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/sequentialjob"
	"github.com/yardmaster/yardmaster/internal/kube"
)

// Act implements kube.Kind. A refusal is not an error: the core decides about it.
func (r *Reconciler) Act(ctx context.Context, sj *v1alpha1.SequentialJob, observation *sequentialjob.Observation, d *sequentialjob.Decision) (bool, error) {
	if d.Status.State.Active == 0 { // the run has ended, or waits for a retry, an approval or a user
		r.stepEnds.Delete(sj)
	}
	if d.NeedsFinalizer {
		before := sj.ResourceVersion
		if err := r.writeCache.SetFinalizer(ctx, r.Client, sj, v1alpha1.SequentialJobFinalizer, true); err != nil {
			return false, err
		}
		if stored, found := r.stored.Get(sj); found && stored == before {
			r.stored.Set(sj, sj.ResourceVersion)
		}
	}
	// Jobs are deleted first, because they may exhaust the quota of the Job to create; in the foreground, so that each
	// exists until its Pods are deleted; and only in the observed version, because a Job that has ended since has an
	// outcome and a log.
	for _, job := range d.DeleteJobs {
		if step := sequentialjob.EvidenceWithoutJob(sj); step != nil && step.JobUID == job.UID {
			r.watchedJobs.Set(sj, job.UID) // the decision is about all of its Pods
		}
		if err := kube.DeleteVersion(ctx, r.Client, job, metav1.DeletePropagationForeground); err != nil {
			return false, err
		}
	}
	refusal, err := r.createObjects(ctx, sj, d)
	if err != nil {
		return false, err
	}
	if refusal != nil {
		observation.SequentialJob, observation.Refusal = sj.DeepCopy(), refusal
		return true, nil
	}
	if job := d.SuspendJob; job != nil {
		if err := r.setSuspend(ctx, job, true); err != nil {
			return false, fmt.Errorf("suspending Job %s: %w", job.Name, err)
		}
	}
	if job := d.ResumeJob; job != nil {
		if err := r.setSuspend(ctx, job, false); err != nil {
			return false, fmt.Errorf("resuming Job %s: %w", job.Name, err)
		}
	}
	switch {
	case d.NeedsFinalizer, !controllerutil.ContainsFinalizer(sj, v1alpha1.SequentialJobFinalizer):
	case d.ReleaseWithin > 0 && !r.progressWrites.Allow(sj.Namespace):
		d.RequeueAfter = decision.Earliest(d.RequeueAfter, d.ReleaseWithin)
	default:
		if err := r.writeCache.SetFinalizer(ctx, r.Client, sj, v1alpha1.SequentialJobFinalizer, false); err != nil {
			return false, err
		}
	}
	if d.DeleteExpired {
		return false, kube.DeleteVersion(ctx, r.Client, sj, metav1.DeletePropagationBackground)
	}
	return false, nil
}

// createObjects creates the workspace, the outputs, the step's Job and the Job that archives logs, in this order.
func (r *Reconciler) createObjects(ctx context.Context, sj *v1alpha1.SequentialJob, d *sequentialjob.Decision) (*decision.Refusal, error) {
	if d.Workspace != nil {
		if refusal, err := r.ensureChild(ctx, sj, d.Workspace, &corev1.PersistentVolumeClaim{}); refusal != nil || err != nil {
			return refusal, err
		}
	}
	if d.Outputs != nil {
		existing := &corev1.ConfigMap{}
		if refusal, err := r.ensureChild(ctx, sj, d.Outputs, existing); refusal != nil || err != nil {
			return refusal, err
		}
		if existing.UID != "" && !maps.Equal(existing.Data, d.Outputs.Data) {
			existing.Data = d.Outputs.Data
			if err := r.Client.Update(ctx, existing); err != nil {
				return nil, fmt.Errorf("updating ConfigMap %s: %w", existing.Name, err)
			}
		}
	}
	if job := d.CreateJob; job != nil {
		refused := decision.Refusal{Kind: "Job", Name: job.Name, Step: job.Labels[v1alpha1.LabelStep]}
		isNew, refusal, err := r.CreateOwned(ctx, job, sj, "SequentialJob", refused)
		if refusal != nil || err != nil {
			return refusal, err
		}
		if isNew {
			r.watchedJobs.Set(sj, job.UID)
			r.emit(sj, sequentialjob.JobCreatedEvent(job))
		}
		r.createdJobs.add(sj, job, r.Clock.Now())
		if ended, found := r.stepEnds.Get(sj); found { // when the previous step's Job was observed to end
			transitionSeconds.Observe(r.Clock.Now().Sub(ended).Seconds())
			r.stepEnds.Delete(sj)
		}
	}
	if d.CreateArchive != nil {
		_, refusal, err := r.CreateOwned(ctx, d.CreateArchive, sj, "SequentialJob", decision.Refusal{Kind: "Job", Name: d.CreateArchive.Name})
		return refusal, err
	}
	return nil, nil
}

// ensureChild creates an object unless it exists, and then reads it into existing.
func (r *Reconciler) ensureChild(ctx context.Context, sj *v1alpha1.SequentialJob, child, existing client.Object) (*decision.Refusal, error) {
	kind, err := r.Client.GroupVersionKindFor(child)
	if err != nil {
		return nil, err
	}
	refused := decision.Refusal{Kind: kind.Kind, Name: child.GetName()}
	found, err := kube.GetIfExists(ctx, r.Live, child.GetNamespace(), child.GetName(), existing)
	switch {
	case err != nil:
		return nil, err
	case found == nil:
		return kube.AsRefusal(r.Client.Create(ctx, child), refused)
	case !decision.WasCreatedFor(sj, found, v1alpha1.LabelSequentialJobUID):
		return decision.NameTaken(refused, "SequentialJob"), nil
	}
	return nil, nil
}

// setSuspend suspends or resumes a Job, and marks a Job that the operator suspended.
func (r *Reconciler) setSuspend(ctx context.Context, job *batchv1.Job, suspend bool) error {
	changed := job.DeepCopy()
	changed.Spec.Suspend = new(suspend)
	if suspend {
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, v1alpha1.AnnotationSuspended, "true")
	} else {
		delete(changed.Annotations, v1alpha1.AnnotationSuspended)
	}
	return client.IgnoreNotFound(r.Client.Patch(ctx, changed, client.MergeFromWithOptions(job, client.MergeFromWithOptimisticLock{})))
}
