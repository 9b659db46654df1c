package policy

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// Selection is the Policies that select an object, the one that goes first before the
// others.
type Selection []*v1alpha1.Policy

// SelectPolicies finds those that select an object with these labels. A Policy whose selector
// cannot be read selects nothing, and is in the error, together with others.
func SelectPolicies(all []v1alpha1.Policy, object map[string]string) (Selection, error) {
	var selected Selection
	var errs []error
	for i := range all {
		matches, err := SelectsLabels(&all[i], object)
		if err != nil {
			errs = append(errs, fmt.Errorf("policy %s: %w", all[i].Name, err))
		}
		if matches {
			selected = append(selected, &all[i])
		}
	}
	slices.SortFunc(selected, func(a, b *v1alpha1.Policy) int {
		return cmp.Or(cmp.Compare(b.Spec.Precedence, a.Spec.Precedence), cmp.Compare(a.Name, b.Name))
	})
	return selected, errors.Join(errs...)
}

// SelectsLabels tells whether a Policy selects an object with these labels. Without a selector
// it selects all.
func SelectsLabels(p *v1alpha1.Policy, object map[string]string) (bool, error) {
	if p.Spec.Selector == nil {
		return true, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(p.Spec.Selector)
	if err != nil {
		return false, fmt.Errorf("spec.selector: %w", err)
	}
	return selector.Matches(labels.Set(object)), nil
}
