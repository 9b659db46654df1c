package policy

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// valueSources are the sources of the settings computed so far.
type valueSources []v1alpha1.FieldSource

// sourceOf returns the source of a field. It adds a missing source.
func (s *valueSources) sourceOf(field string) *v1alpha1.FieldSource {
	i := slices.IndexFunc(*s, func(source v1alpha1.FieldSource) bool { return source.Field == field })
	if i < 0 {
		*s = append(*s, v1alpha1.FieldSource{Field: field})
		i = len(*s) - 1
	}
	return &(*s)[i]
}

func (s *valueSources) setSource(field string, from v1alpha1.ValueSource, policy string) {
	source := s.sourceOf(field)
	source.From, source.Policy = from, policy
}

// policyLayer contains the settings of a Policy for one field.
type policyLayer[S any] struct {
	settings *S
	policy   string
}

func appendLayer[S any](layers []policyLayer[S], p *v1alpha1.Policy, settings *S) []policyLayer[S] {
	if settings == nil {
		return layers
	}
	return append(layers, policyLayer[S]{settings, p.Name})
}

// layers are the object's own settings, which may be nil, and the settings of Policies in order of precedence.
type layers[S any] struct {
	own      *S
	policies []policyLayer[S]
}

// firstSpecified returns the value of the first layer that sets it; nil if no layer does.
func firstSpecified[S, T any](s *valueSources, field string, l layers[S], value func(*S) *T) *T {
	if l.own != nil {
		if found := value(l.own); found != nil {
			s.setSource(field, v1alpha1.FromSpec, "")
			return found
		}
	}
	for _, p := range l.policies {
		if found := value(p.settings); found != nil {
			s.setSource(field, v1alpha1.FromPolicy, p.policy)
			return found
		}
	}
	return nil
}

// specifiedOrDefault returns the value of the first layer that sets it, or else the default.
func specifiedOrDefault[S, T any](s *valueSources, field string, l layers[S], value func(*S) *T, def T) *T {
	if found := firstSpecified(s, field, l, value); found != nil {
		return found
	}
	s.setSource(field, v1alpha1.FromDefault, "")
	return &def
}

func policyDefaults(p *v1alpha1.Policy) v1alpha1.PolicyDefaults {
	return ptr.Deref(p.Spec.Defaults, v1alpha1.PolicyDefaults{})
}

func policyLimits(p *v1alpha1.Policy) v1alpha1.PolicyLimits {
	return ptr.Deref(p.Spec.Limits, v1alpha1.PolicyLimits{})
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
