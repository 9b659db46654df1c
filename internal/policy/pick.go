package policy

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// valueSources are where the values picked so far come from.
type valueSources []v1alpha1.FieldSource

func (s *valueSources) addSource(field string, from v1alpha1.ValueSource, policy string) {
	*s = append(*s, v1alpha1.FieldSource{Field: field, From: from, Policy: policy})
}

// replaceSource says of a field that was told before where its value comes from now.
func (s *valueSources) replaceSource(field string, from v1alpha1.ValueSource, policy string) {
	for i := range *s {
		if (*s)[i].Field == field {
			(*s)[i].From, (*s)[i].Policy = from, policy
			return
		}
	}
	s.addSource(field, from, policy)
}

// sourceOf is where a field's value comes from.
func (s *valueSources) sourceOf(field string) v1alpha1.FieldSource {
	for _, source := range *s {
		if source.Field == field {
			return source
		}
	}
	return v1alpha1.FieldSource{Field: field}
}

// firstSpecified finds the value that goes first: the object's own, or that of the first Policy
// that has one. Nil, if nobody has.
func firstSpecified[T any](s *valueSources, field string, own *T, selected Selection, of func(p *v1alpha1.Policy) *T) *T {
	if own != nil {
		s.addSource(field, v1alpha1.FromSpec, "")
		return own
	}
	for _, p := range selected {
		if value := of(p); value != nil {
			s.addSource(field, v1alpha1.FromPolicy, p.Name)
			return value
		}
	}
	return nil
}

// specifiedOrDefault is given, or else the default.
func specifiedOrDefault[T any](s *valueSources, field string, own *T, selected Selection, of func(p *v1alpha1.Policy) *T, def T) *T {
	if value := firstSpecified(s, field, own, selected, of); value != nil {
		return value
	}
	s.addSource(field, v1alpha1.FromDefault, "")
	return &def
}

// policyDefaults of a Policy; empty ones, if it has none.
func policyDefaults(p *v1alpha1.Policy) *v1alpha1.PolicyDefaults { return orEmpty(p.Spec.Defaults) }

// policyLimits of a Policy; none, if it has none.
func policyLimits(p *v1alpha1.Policy) *v1alpha1.PolicyLimits { return orEmpty(p.Spec.Limits) }

func orEmpty[T any](value *T) *T {
	if value == nil {
		return new(T)
	}
	return value
}

// nilIfZero is a value whose zero means that it is left out.
func nilIfZero[T comparable](value T) *T {
	if value == *new(T) {
		return nil
	}
	return &value
}

func apiDuration(d time.Duration) v1alpha1.Duration {
	return v1alpha1.Duration{Duration: metav1.Duration{Duration: d}}
}
