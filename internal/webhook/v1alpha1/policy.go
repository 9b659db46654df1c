package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// SetupPolicy adds the webhook for Policies to the manager.
func SetupPolicy(mgr ctrl.Manager) error {
	return policyValidator.setup(mgr, &v1alpha1.Policy{})
}

var policyValidator = &specValidator[*v1alpha1.Policy]{
	kind:     "Policy",
	specOf:   func(p *v1alpha1.Policy) any { return p.Spec },
	validate: validatePolicy,
}

func validatePolicy(p *v1alpha1.Policy) field.ErrorList {
	if _, err := metav1.LabelSelectorAsSelector(p.Spec.Selector); err != nil {
		return field.ErrorList{field.Invalid(field.NewPath("spec", "selector"), field.OmitValueType{}, err.Error())}
	}
	return nil
}
