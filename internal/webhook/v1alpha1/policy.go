package v1alpha1

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/queue"
)

// policyValidator refuses a Policy that could select nothing, or give what cannot be.
type policyValidator struct{}

var _ admission.Validator[*v1alpha1.Policy] = policyValidator{}

// ValidateCreate refuses what CEL cannot: a selector that is none, and delays that only
// the defaults make wrong.
func (policyValidator) ValidateCreate(_ context.Context, p *v1alpha1.Policy) (admission.Warnings, error) {
	return nil, refused("Policy", p.Name, validatePolicy(p))
}

// ValidateUpdate does the same for a spec that changes.
func (policyValidator) ValidateUpdate(_ context.Context, before, after *v1alpha1.Policy) (admission.Warnings, error) {
	if !after.DeletionTimestamp.IsZero() || equality.Semantic.DeepEqual(before.Spec, after.Spec) {
		return nil, nil
	}
	return nil, refused("Policy", after.Name, validatePolicy(after))
}

// ValidateDelete is never asked.
func (policyValidator) ValidateDelete(context.Context, *v1alpha1.Policy) (admission.Warnings, error) {
	return nil, nil
}

func validatePolicy(p *v1alpha1.Policy) field.ErrorList {
	var errs field.ErrorList
	spec := field.NewPath("spec")
	if _, err := metav1.LabelSelectorAsSelector(p.Spec.Selector); err != nil {
		errs = append(errs, field.Invalid(spec.Child("selector"), field.OmitValueType{}, err.Error()))
	}
	if d := p.Spec.Defaults; d != nil && d.Retry != nil {
		if err := queue.ValidateRetry(d.Retry); err != nil {
			errs = append(errs, field.Invalid(spec.Child("defaults", "retry"), field.OmitValueType{}, err.Error()))
		}
	}
	return errs
}
