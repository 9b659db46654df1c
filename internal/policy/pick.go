package policy

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// sources are where the values picked so far come from.
type sources []v1alpha1.FieldSource

func (s *sources) add(field string, from v1alpha1.ValueSource, policy string) {
	*s = append(*s, v1alpha1.FieldSource{Field: field, From: from, Policy: policy})
}

// set says of a field that was told before where its value comes from now.
func (s *sources) set(field string, from v1alpha1.ValueSource, policy string) {
	for i := range *s {
		if (*s)[i].Field == field {
			(*s)[i].From, (*s)[i].Policy = from, policy
			return
		}
	}
	s.add(field, from, policy)
}

// of is where a field's value comes from.
func (s *sources) of(field string) v1alpha1.FieldSource {
	for _, source := range *s {
		if source.Field == field {
			return source
		}
	}
	return v1alpha1.FieldSource{Field: field}
}

// given finds the value that goes first: the object's own, or that of the first Policy
// that has one. Nil, if nobody has.
func given[T any](s *sources, field string, own *T, selected Selection, of func(p *v1alpha1.Policy) *T) *T {
	if own != nil {
		s.add(field, v1alpha1.FromSpec, "")
		return own
	}
	for _, p := range selected {
		if value := of(p); value != nil {
			s.add(field, v1alpha1.FromPolicy, p.Name)
			return value
		}
	}
	return nil
}

// pick is given, or else the default.
func pick[T any](s *sources, field string, own *T, selected Selection, of func(p *v1alpha1.Policy) *T, def T) *T {
	if value := given(s, field, own, selected, of); value != nil {
		return value
	}
	s.add(field, v1alpha1.FromDefault, "")
	return &def
}

// defaults of a Policy; empty ones, if it has none.
func defaults(p *v1alpha1.Policy) *v1alpha1.PolicyDefaults { return orEmpty(p.Spec.Defaults) }

// limits of a Policy; none, if it has none.
func limits(p *v1alpha1.Policy) *v1alpha1.PolicyLimits { return orEmpty(p.Spec.Limits) }

func orEmpty[T any](value *T) *T {
	if value == nil {
		return new(T)
	}
	return value
}

// unlessZero is a value whose zero means that it is left out.
func unlessZero[T comparable](value T) *T {
	if value == *new(T) {
		return nil
	}
	return &value
}

func lasting(d time.Duration) v1alpha1.Duration {
	return v1alpha1.Duration{Duration: metav1.Duration{Duration: d}}
}
