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

// Selection contains the Policies that select an object, in order of precedence.
type Selection []*v1alpha1.Policy

// SelectPolicies returns the Policies that select an object with these labels. A Policy with an
// invalid selector selects nothing, and is part of the error.
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

// SelectsLabels reports whether a Policy selects an object with these labels. A Policy without a
// selector selects all objects.
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
