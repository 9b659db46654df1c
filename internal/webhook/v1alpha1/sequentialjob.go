package v1alpha1

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/sequence"
)

// SetupSequentialJob adds the webhook for SequentialJobs to the manager.
func SetupSequentialJob(mgr ctrl.Manager) error {
	return ctrl.NewWebhookManagedBy(mgr, &v1alpha1.SequentialJob{}).
		WithValidator(sequentialJobValidator{}).
		Complete()
}

// sequentialJobValidator asks package sequence what is wrong with a SequentialJob.
type sequentialJobValidator struct{}

var _ admission.Validator[*v1alpha1.SequentialJob] = sequentialJobValidator{}

// ValidateCreate refuses a spec that could never run.
func (sequentialJobValidator) ValidateCreate(_ context.Context, sj *v1alpha1.SequentialJob) (admission.Warnings, error) {
	if !sequence.Manages(sj) {
		return nil, nil
	}
	return specWarnings(sj), refused("SequentialJob", sj.Name, sequence.Validate(sj))
}

// ValidateUpdate refuses, besides, a change of what has already happened.
func (sequentialJobValidator) ValidateUpdate(_ context.Context, before, after *v1alpha1.SequentialJob) (admission.Warnings, error) {
	// An object that is on its way out, or of which only metadata or status changes,
	// must pass whatever its spec is: its finalizer could not be removed otherwise.
	if !after.DeletionTimestamp.IsZero() || equality.Semantic.DeepEqual(before.Spec, after.Spec) || !sequence.Manages(after) {
		return nil, nil
	}
	errs := sequence.Validate(after)
	errs = append(errs, sequence.FrozenViolations(&after.Spec, sequence.RecordedStatus(before))...)
	errs = append(errs, validateRerun(before, after)...)
	return append(specWarnings(after), changeWarnings(before, after)...), refused("SequentialJob", after.Name, errs)
}

// ValidateDelete is never asked.
func (sequentialJobValidator) ValidateDelete(context.Context, *v1alpha1.SequentialJob) (admission.Warnings, error) {
	return nil, nil
}

// validateRerun refuses to ask a finished run for a rerun that cannot be. One that was
// asked for before is left alone: it must not bar other changes.
func validateRerun(before, after *v1alpha1.SequentialJob) field.ErrorList {
	if !finished(before) || !rerunAsked(before, after) {
		return nil
	}
	if err := sequence.RerunError(&after.Spec, &before.Status); err != nil {
		return field.ErrorList{field.Invalid(field.NewPath("spec", "rerun"), rerunText(after.Spec.Rerun), err.Error())}
	}
	return nil
}

// rerunAsked reports whether this very change asks for another run.
func rerunAsked(before, after *v1alpha1.SequentialJob) bool {
	return sequence.RerunWanted(&after.Spec, &before.Status) &&
		!equality.Semantic.DeepEqual(before.Spec.Rerun, after.Spec.Rerun)
}

func rerunText(rerun *v1alpha1.Rerun) string {
	return "id " + rerun.ID + " from " + rerun.From
}

func finished(sj *v1alpha1.SequentialJob) bool { return sj.Status.CompletionTime != nil }
