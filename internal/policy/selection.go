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

// Set contains the Policies of a namespace. The zero value is empty.
type Set struct {
	ordered   Selection
	selectors []labels.Selector // of ordered
	// selective is true if at least one Policy does not select all objects.
	selective bool
}

// NewSet returns the set of Policies, to which it refers. A Policy with an invalid selector selects nothing,
// and is part of the error.
func NewSet(policies []v1alpha1.Policy) (Set, error) {
	ordered := make(Selection, len(policies))
	for i := range policies {
		ordered[i] = &policies[i]
	}
	slices.SortFunc(ordered, func(a, b *v1alpha1.Policy) int {
		return cmp.Or(cmp.Compare(b.Spec.Precedence, a.Spec.Precedence), cmp.Compare(a.Name, b.Name))
	})
	var set Set
	var errs []error
	for _, p := range ordered {
		selector, err := SelectorOf(p)
		if err != nil {
			errs = append(errs, fmt.Errorf("policy %s: %w", p.Name, err))
			continue
		}
		set.ordered, set.selectors = append(set.ordered, p), append(set.selectors, selector)
		set.selective = set.selective || !selector.Empty()
	}
	return set, errors.Join(errs...)
}

// Select returns the Policies that select an object with these labels. The result must not be changed.
func (s Set) Select(object map[string]string) Selection {
	if !s.selective {
		return s.ordered
	}
	var selected Selection
	for i, selector := range s.selectors {
		if selector.Matches(labels.Set(object)) {
			selected = append(selected, s.ordered[i])
		}
	}
	return selected
}

// SelectorOf returns the selector of a Policy. A Policy without one selects all objects. An invalid one selects
// nothing, and is an error.
func SelectorOf(p *v1alpha1.Policy) (labels.Selector, error) {
	if p.Spec.Selector == nil {
		return labels.Everything(), nil
	}
	selector, err := metav1.LabelSelectorAsSelector(p.Spec.Selector)
	if err != nil {
		return labels.Nothing(), fmt.Errorf("spec.selector: %w", err)
	}
	return selector, nil
}
