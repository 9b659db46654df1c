package workerpool

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/internal/pool"
)

// lowestCost has a ReplicaSet take a Pod before all others that are as ready.
const lowestCost = "-2147483647"

// act carries out a plan whose status is recorded.
func (r *Reconciler) act(ctx context.Context, wp *v1alpha1.WorkerPool, seen *sight, plan *pool.Decision) error {
	if plan.KeepFinalizer {
		if err := r.patchFinalizer(ctx, wp, func(o client.Object) { controllerutil.AddFinalizer(o, v1alpha1.WorkerPoolFinalizer) }); err != nil {
			return err
		}
	}
	if err := r.mark(ctx, seen, plan.DrainStates); err != nil {
		return err
	}
	r.ask(ctx, seen, plan.DrainRequests)
	if err := r.apply(ctx, wp, seen, plan); err != nil {
		return err
	}
	if err := r.keep(ctx, wp, seen, plan); err != nil {
		return err
	}
	for i := range plan.Resizes {
		if err := r.resize(ctx, wp, seen, &plan.Resizes[i]); err != nil {
			return err
		}
	}
	for _, name := range plan.DeleteRevisions {
		if err := r.remove(ctx, seen.workloads[name]); err != nil {
			return err
		}
	}
	if plan.KeepFinalizer {
		return nil
	}
	return r.patchFinalizer(ctx, wp, func(o client.Object) { controllerutil.RemoveFinalizer(o, v1alpha1.WorkerPoolFinalizer) })
}

func (r *Reconciler) patchFinalizer(ctx context.Context, wp *v1alpha1.WorkerPool, change func(client.Object)) error {
	version := wp.ResourceVersion
	if err := kube.PatchMetadata(ctx, r.client, wp, change); err != nil {
		return fmt.Errorf("patching the finalizer: %w", err)
	}
	if wp.ResourceVersion != version && controllerutil.ContainsFinalizer(wp, v1alpha1.WorkerPoolFinalizer) {
		r.writeCache.Record(wp)
	}
	return nil
}

// markers is how many Pods are written at once.
const markers = 8

// mark writes on Pods where they stand on their way out. One that has changed meanwhile keeps
// none of the others from being written.
func (r *Reconciler) mark(ctx context.Context, seen *sight, marks []pool.DrainState) error {
	var group errgroup.Group
	group.SetLimit(markers)
	for _, m := range marks {
		group.Go(func() error {
			before := seen.pods[m.Worker]
			after := before.DeepCopy()
			write(after, pool.AnnotationDraining, m.DrainingSince)
			write(after, pool.AnnotationIdle, m.IdleSince)
			write(after, pool.AnnotationRemovable, m.RemovableSince)
			if !m.RemovableSince.IsZero() {
				metav1.SetMetaDataAnnotation(&after.ObjectMeta, corev1.PodDeletionCost, lowestCost)
			}
			err := r.client.Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
			if err != nil {
				return fmt.Errorf("marking Pod %s: %w", m.Worker, err)
			}
			return nil
		})
	}
	return group.Wait()
}

func write(pod *corev1.Pod, annotation string, at time.Time) {
	if at.IsZero() {
		delete(pod.Annotations, annotation)
		return
	}
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, annotation, at.UTC().Format(time.RFC3339))
}

// ask has workers drain or go on. One that does not hear is asked again in the next pass.
func (r *Reconciler) ask(ctx context.Context, seen *sight, requests []pool.DrainRequest) {
	ctx, cancel := context.WithTimeout(ctx, asking)
	defer cancel()
	var group errgroup.Group
	for _, request := range requests {
		pod, do := seen.pods[request.Worker], r.workers.Resume
		if request.Drain {
			do = r.workers.Drain
		}
		if pod.Status.PodIP == "" {
			continue
		}
		group.Go(func() error {
			if err := do(ctx, r.options.Address(pod)); err != nil {
				ctrl.LoggerFrom(ctx).V(1).Info("A worker could not be asked", "pod", pod.Name, "drain", request.Drain, "error", err.Error())
			}
			return nil
		})
	}
	_ = group.Wait() // none fails
}

// resize makes a revision, or asks it for other replicas.
func (r *Reconciler) resize(ctx context.Context, wp *v1alpha1.WorkerPool, seen *sight, size *pool.RevisionSize) error {
	if size.NewWorkload != nil {
		return r.create(ctx, wp, size)
	}
	before := seen.workloads[size.Name]
	after := before.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy has its original's type
	replicas := replicasOf(after)
	if size.Replicas < *replicas {
		if err := r.assertHarmless(ctx, seen, size); err != nil {
			return err
		}
	}
	*replicas = size.Replicas
	remember(after, size.History)
	err := r.client.Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	return refusedOr(err, "changing", size.Name)
}

// replicasOf is where a workload has them.
func replicasOf(workload client.Object) *int32 {
	switch w := workload.(type) {
	case *appsv1.Deployment:
		if w.Spec.Replicas == nil {
			w.Spec.Replicas = new(int32(1))
		}
		return w.Spec.Replicas
	case *appsv1.StatefulSet:
		if w.Spec.Replicas == nil {
			w.Spec.Replicas = new(int32(1))
		}
		return w.Spec.Replicas
	}
	return new(int32(0))
}

func remember(workload client.Object, past pool.History) {
	annotations := workload.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	if text := past.String(); text != "" {
		annotations[pool.AnnotationRolloutHistory] = text
	} else {
		delete(annotations, pool.AnnotationRolloutHistory)
	}
	workload.SetAnnotations(annotations)
}

// assertHarmless looks, live, at the workers that a revision would lose.
func (r *Reconciler) assertHarmless(ctx context.Context, seen *sight, size *pool.RevisionSize) error {
	workload := seen.workloads[size.Name]
	selector := pool.WorkerSelector(seen.in.Pool.Name)
	selector[pool.LabelRevision] = hashOf(workload)
	var pods corev1.PodList
	if err := r.live.List(ctx, &pods, client.InNamespace(workload.GetNamespace()), client.MatchingLabels(selector)); err != nil {
		return fmt.Errorf("listing the Pods of %s: %w", size.Name, err)
	}
	now := &sight{workloads: seen.workloads, pods: map[string]*corev1.Pod{}}
	if size.WouldInterrupt(now.workers(pods.Items)) {
		return kube.ErrStale
	}
	return nil
}

func (r *Reconciler) create(ctx context.Context, wp *v1alpha1.WorkerPool, size *pool.RevisionSize) error {
	workload := size.NewWorkload.DeepCopyObject().(client.Object) //nolint:forcetypeassert // all objects are
	*replicasOf(workload) = size.Replicas
	remember(workload, size.History)
	err := r.client.Create(ctx, workload)
	if !apierrors.IsAlreadyExists(err) {
		return refusedOr(err, "making", size.Name)
	}
	// Ours if a pass made it that could not tell, or the cache is behind.
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(workload), workload); err != nil {
		return fmt.Errorf("reading %s: %w", size.Name, err)
	}
	if !pool.IsControllerOf(wp, workload) {
		return nameTaken(workload)
	}
	if pool.HasDrifted(size.NewWorkload, workload) { // without its labels the cache does not have it
		u, err := configurationOf(size.NewWorkload)
		if err != nil {
			return err
		}
		if err := r.applyOne(ctx, wp, u, workload); err != nil {
			return err
		}
	}
	return kube.ErrStale
}

// remove deletes a revision that has no workers.
func (r *Reconciler) remove(ctx context.Context, workload client.Object) error {
	version, uid := workload.GetResourceVersion(), workload.GetUID()
	err := r.client.Delete(ctx, workload, client.PropagationPolicy(metav1.DeletePropagationBackground),
		client.Preconditions{UID: &uid, ResourceVersion: &version})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting revision %s: %w", workload.GetName(), err)
	}
	return nil
}
