package policy

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// valueSources are the sources of the settings computed so far.
type valueSources []v1alpha1.FieldSource

func (s *valueSources) addSource(field string, from v1alpha1.ValueSource, policy string) {
	*s = append(*s, v1alpha1.FieldSource{Field: field, From: from, Policy: policy})
}

// replaceSource replaces the source of a field.
func (s *valueSources) replaceSource(field string, from v1alpha1.ValueSource, policy string) {
	for i := range *s {
		if (*s)[i].Field == field {
			(*s)[i].From, (*s)[i].Policy = from, policy
			return
		}
	}
	s.addSource(field, from, policy)
}

// sourceOf returns the source of a field.
func (s *valueSources) sourceOf(field string) v1alpha1.FieldSource {
	for _, source := range *s {
		if source.Field == field {
			return source
		}
	}
	return v1alpha1.FieldSource{Field: field}
}

// firstSpecified returns the value of the object itself, or else that of the first Policy that
// sets one; nil if none does.
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

// specifiedOrDefault returns the value that firstSpecified returns, or else the default.
func specifiedOrDefault[T any](s *valueSources, field string, own *T, selected Selection, of func(p *v1alpha1.Policy) *T, def T) *T {
	if value := firstSpecified(s, field, own, selected, of); value != nil {
		return value
	}
	s.addSource(field, v1alpha1.FromDefault, "")
	return &def
}

// policyDefaults returns the defaults of a Policy; empty if it sets none.
func policyDefaults(p *v1alpha1.Policy) *v1alpha1.PolicyDefaults { return orEmpty(p.Spec.Defaults) }

// policyLimits returns the limits of a Policy; empty if it sets none.
func policyLimits(p *v1alpha1.Policy) *v1alpha1.PolicyLimits { return orEmpty(p.Spec.Limits) }

func orEmpty[T any](value *T) *T {
	if value == nil {
		return new(T)
	}
	return value
}

// nilIfZero returns nil for the zero value, which means that the field is omitted.
func nilIfZero[T comparable](value T) *T {
	if value == *new(T) {
		return nil
	}
	return &value
}

func apiDuration(d time.Duration) v1alpha1.Duration {
	return v1alpha1.Duration{Duration: metav1.Duration{Duration: d}}
}
