package v1alpha1

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// SetupPolicy adds the webhook for Policies to the manager.
func SetupPolicy(mgr ctrl.Manager) error {
	return ctrl.NewWebhookManagedBy(mgr, &v1alpha1.Policy{}).WithValidator(policyValidator{}).Complete()
}

// policyValidator refuses a Policy whose selector is none.
type policyValidator struct{}

var _ admission.Validator[*v1alpha1.Policy] = policyValidator{}

// ValidateCreate refuses what CEL cannot.
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
	if _, err := metav1.LabelSelectorAsSelector(p.Spec.Selector); err != nil {
		return field.ErrorList{field.Invalid(field.NewPath("spec", "selector"), field.OmitValueType{}, err.Error())}
	}
	return nil
}
