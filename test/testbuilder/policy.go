package testbuilder

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/policy"
)

// SelectPolicies returns what these Policies specify for an object without labels.
func SelectPolicies(policies ...v1alpha1.Policy) policy.Selection {
	set, err := policy.NewSet(policies)
	if err != nil {
		panic(err)
	}
	return set.Select(nil)
}

// AllowImages returns the selection of a Policy named team that allows only these images.
func AllowImages(images ...string) policy.Selection {
	return SelectPolicies(v1alpha1.Policy{
		ObjectMeta: metav1.ObjectMeta{Name: "team"},
		Spec:       v1alpha1.PolicySpec{Limits: &v1alpha1.PolicyLimits{AllowedImages: images}},
	})
}
