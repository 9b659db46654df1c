package v1alpha1

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/pool"
)

// SetupWorkerPool adds the webhook for WorkerPools to the manager.
func SetupWorkerPool(mgr ctrl.Manager) error {
	return ctrl.NewWebhookManagedBy(mgr, &v1alpha1.WorkerPool{}).WithValidator(workerPoolValidator{}).Complete()
}

// workerPoolValidator asks package pool what is wrong with a WorkerPool.
type workerPoolValidator struct{}

var _ admission.Validator[*v1alpha1.WorkerPool] = workerPoolValidator{}

// ValidateCreate refuses a template that takes what is the operator's.
func (workerPoolValidator) ValidateCreate(_ context.Context, wp *v1alpha1.WorkerPool) (admission.Warnings, error) {
	return poolWarnings(wp), refused("WorkerPool", wp.Name, pool.ValidateSpec(wp))
}

// ValidateUpdate does the same. Where the spec stays, it was taken once and must not bar a
// change of something else.
func (workerPoolValidator) ValidateUpdate(_ context.Context, before, after *v1alpha1.WorkerPool) (admission.Warnings, error) {
	if !after.DeletionTimestamp.IsZero() || equality.Semantic.DeepEqual(before.Spec, after.Spec) {
		return nil, nil
	}
	return poolWarnings(after), refused("WorkerPool", after.Name, pool.ValidateSpec(after))
}

// ValidateDelete is never asked.
func (workerPoolValidator) ValidateDelete(context.Context, *v1alpha1.WorkerPool) (admission.Warnings, error) {
	return nil, nil
}

func poolWarnings(wp *v1alpha1.WorkerPool) admission.Warnings {
	var all admission.Warnings
	if wp.Spec.Drain != nil && wp.Spec.Drain.Mode == v1alpha1.DrainSignal {
		all = append(all, "spec.drain.mode: with Signal nobody tells which workers are idle, so busy ones may be asked to finish first")
	}
	if a := wp.Spec.Autoscaling; a != nil && a.DryRun {
		all = append(all, "spec.autoscaling.dryRun: decisions are told in status.lastDecision, and not carried out")
	}
	return all
}
