package sequentialjob

import (
	"context"
	"fmt"
	"maps"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/internal/sequence"
)

// act carries out a plan whose status is recorded; it was decided on the version read. A
// refusal is not an error: the core says what it means.
func (r *Reconciler) act(ctx context.Context, sj *v1alpha1.SequentialJob, plan *sequence.Plan, read string) (*sequence.Refusal, error) {
	if plan.Finalizer {
		if err := r.keepFinalizer(ctx, sj, plan.FirstStep); err != nil {
			return nil, err
		}
	}
	if plan.Acts() && sj.ResourceVersion == read {
		if err := r.assertFresh(ctx, sj); err != nil {
			return nil, err
		}
	}
	refusal, err := r.create(ctx, sj, plan)
	if refusal != nil || err != nil {
		return refusal, err
	}
	if err := r.hold(ctx, plan); err != nil {
		return nil, err
	}
	for _, job := range plan.Delete {
		if err := r.deleteJob(ctx, job); err != nil {
			return nil, err
		}
	}
	return nil, r.letGo(ctx, sj, plan)
}

// letGo removes the finalizer when nothing needs it, and the object when its time is over.
func (r *Reconciler) letGo(ctx context.Context, sj *v1alpha1.SequentialJob, plan *sequence.Plan) error {
	if !plan.Finalizer {
		if err := r.dropFinalizer(ctx, sj); err != nil {
			return err
		}
	}
	if plan.Terminated {
		r.emit(sj, sequence.TerminatedEvent())
	}
	if !plan.Expired {
		return nil
	}
	version := sj.ResourceVersion
	err := r.client.Delete(ctx, sj, client.PropagationPolicy(metav1.DeletePropagationBackground),
		client.Preconditions{UID: &sj.UID, ResourceVersion: &version})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting the expired SequentialJob: %w", err)
	}
	return nil
}

// keepFinalizer puts the finalizer on, with the record of the first step.
func (r *Reconciler) keepFinalizer(ctx context.Context, sj *v1alpha1.SequentialJob, firstStep string) error {
	return r.patchMetadata(ctx, sj, func(object client.Object) {
		controllerutil.AddFinalizer(object, v1alpha1.SequentialJobFinalizer)
		if firstStep != "" {
			metav1.SetMetaDataAnnotation(&sj.ObjectMeta, v1alpha1.AnnotationFirstStep, firstStep)
		}
	})
}

func (r *Reconciler) dropFinalizer(ctx context.Context, sj *v1alpha1.SequentialJob) error {
	return r.patchMetadata(ctx, sj, func(object client.Object) {
		controllerutil.RemoveFinalizer(object, v1alpha1.SequentialJobFinalizer)
		delete(sj.Annotations, v1alpha1.AnnotationFirstStep)
	})
}

func (r *Reconciler) patchMetadata(ctx context.Context, sj *v1alpha1.SequentialJob, change func(client.Object)) error {
	version := sj.ResourceVersion
	if err := kube.PatchMetadata(ctx, r.client, sj, change); err != nil {
		return fmt.Errorf("patching the finalizer: %w", err)
	}
	if sj.ResourceVersion != version && sj.DeletionTimestamp.IsZero() {
		r.writeCache.Record(sj)
	}
	return nil
}

// assertFresh reads the object again before acting in a pass that has written nothing
// over it. Without that, a stale cache could make the Job of a step that has run since.
func (r *Reconciler) assertFresh(ctx context.Context, sj *v1alpha1.SequentialJob) error {
	current := &v1alpha1.SequentialJob{}
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(sj), current); err != nil {
		return fmt.Errorf("reading the SequentialJob again: %w", err)
	}
	if current.UID != sj.UID || current.ResourceVersion != sj.ResourceVersion {
		return kube.ErrStale
	}
	return nil
}

// create makes the step's Job, after what it needs.
func (r *Reconciler) create(ctx context.Context, sj *v1alpha1.SequentialJob, plan *sequence.Plan) (*sequence.Refusal, error) {
	if plan.Create == nil {
		return nil, nil
	}
	if plan.Workspace != nil {
		if refusal, err := r.ensureWorkspace(ctx, sj, plan.Workspace); refusal != nil || err != nil {
			return refusal, err
		}
	}
	if plan.Outputs != nil {
		if refusal, err := r.ensureOutputs(ctx, sj, plan.Outputs); refusal != nil || err != nil {
			return refusal, err
		}
	}
	return r.createJob(ctx, sj, plan.Create)
}

func (r *Reconciler) createJob(ctx context.Context, sj *v1alpha1.SequentialJob, job *batchv1.Job) (*sequence.Refusal, error) {
	name := job.Name
	err := r.client.Create(ctx, job)
	switch {
	case apierrors.IsAlreadyExists(err):
		// Ours if a pass made it that could not tell, else a stranger's: leave it alone.
		err = r.live.Get(ctx, client.ObjectKey{Namespace: sj.Namespace, Name: name}, job)
		if err == nil && !sequence.IsOwned(sj, job) {
			return nameTaken("Job", name), nil
		}
	case err == nil:
		r.emit(sj, sequence.StartedEvent(job))
	}
	if err != nil {
		return refusalOf(err, "", "creating Job "+name)
	}
	r.created.add(sj, job, r.clock.Now())
	r.transitions.stepStarted(sj.UID, r.clock.Now())
	return nil, nil
}

func (r *Reconciler) ensureWorkspace(ctx context.Context, sj *v1alpha1.SequentialJob, claim *corev1.PersistentVolumeClaim) (*sequence.Refusal, error) {
	found := &corev1.PersistentVolumeClaim{}
	err := r.live.Get(ctx, client.ObjectKeyFromObject(claim), found)
	switch {
	case apierrors.IsNotFound(err):
		return refusalOf(r.client.Create(ctx, claim), "", "creating PersistentVolumeClaim "+claim.Name)
	case err != nil:
		return nil, fmt.Errorf("reading PersistentVolumeClaim %s: %w", claim.Name, err)
	case !sequence.IsOurs(sj, found):
		return nameTaken("PersistentVolumeClaim", claim.Name), nil
	}
	return nil, nil
}

func (r *Reconciler) ensureOutputs(ctx context.Context, sj *v1alpha1.SequentialJob, outputs *corev1.ConfigMap) (*sequence.Refusal, error) {
	found := &corev1.ConfigMap{}
	err := r.live.Get(ctx, client.ObjectKeyFromObject(outputs), found)
	switch {
	case apierrors.IsNotFound(err):
		return refusalOf(r.client.Create(ctx, outputs), "", "creating ConfigMap "+outputs.Name)
	case err != nil:
		return nil, fmt.Errorf("reading ConfigMap %s: %w", outputs.Name, err)
	case !sequence.IsOurs(sj, found):
		return nameTaken("ConfigMap", outputs.Name), nil
	case maps.Equal(found.Data, outputs.Data):
		return nil, nil
	}
	found.Data = outputs.Data
	if err := r.client.Update(ctx, found); err != nil {
		return nil, fmt.Errorf("updating ConfigMap %s: %w", outputs.Name, err)
	}
	return nil, nil
}

// hold suspends or resumes a Job, and marks whose doing that is.
func (r *Reconciler) hold(ctx context.Context, plan *sequence.Plan) error {
	for _, change := range []struct {
		job     *batchv1.Job
		suspend bool
	}{{plan.Suspend, true}, {plan.Resume, false}} {
		if change.job == nil {
			continue
		}
		err := r.setSuspended(ctx, change.job, change.suspend)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("suspending or resuming Job %s: %w", change.job.Name, err)
		}
	}
	return nil
}

func (r *Reconciler) setSuspended(ctx context.Context, job *batchv1.Job, suspend bool) error {
	changed := job.DeepCopy()
	changed.Spec.Suspend = new(suspend)
	if suspend {
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, v1alpha1.AnnotationSuspended, "true")
	} else {
		delete(changed.Annotations, v1alpha1.AnnotationSuspended)
	}
	return r.client.Patch(ctx, changed, client.MergeFromWithOptions(job, client.MergeFromWithOptimisticLock{}))
}

// deleteJob deletes a Job so that it is gone only when its Pods are. Without a policy,
// batch/v1 would leave them running.
func (r *Reconciler) deleteJob(ctx context.Context, job *batchv1.Job) error {
	err := r.client.Delete(ctx, job.DeepCopy(), client.PropagationPolicy(metav1.DeletePropagationForeground), client.Preconditions{UID: &job.UID})
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) { // conflict: another Job has the name now
		return fmt.Errorf("deleting Job %s: %w", job.Name, err)
	}
	return nil
}
