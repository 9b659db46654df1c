package v1alpha1

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/pool"
)

// SetupWorkerPool adds the webhook for WorkerPools to the manager.
func SetupWorkerPool(mgr ctrl.Manager) error {
	return workerPoolValidator.setup(mgr, &v1alpha1.WorkerPool{})
}

var workerPoolValidator = &specValidator[*v1alpha1.WorkerPool]{
	kind:     "WorkerPool",
	specOf:   func(wp *v1alpha1.WorkerPool) any { return wp.Spec },
	validate: pool.ValidateSpec,
	warn:     workerPoolWarnings,
}

func workerPoolWarnings(_ context.Context, wp *v1alpha1.WorkerPool) admission.Warnings {
	var warnings admission.Warnings
	if wp.Spec.Drain != nil && wp.Spec.Drain.Mode == v1alpha1.DrainSignal {
		warnings = append(warnings, "spec.drain.mode: with Signal the operator does not know which workers are idle, and may drain busy workers first")
	}
	if a := wp.Spec.Autoscaling; a != nil && a.DryRun {
		warnings = append(warnings, "spec.autoscaling.dryRun: decisions are reported in status.lastDecision and not carried out")
	}
	return warnings
}
