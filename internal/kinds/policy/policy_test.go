package policy

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// newPolicy returns a Policy that selects all objects.
func newPolicy(name string, precedence int32, changes ...func(s *v1alpha1.PolicySpec)) v1alpha1.Policy {
	p := v1alpha1.Policy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.Precedence = precedence
	for _, change := range changes {
		change(&p.Spec)
	}
	return p
}

func fromDefault(d v1alpha1.PolicyDefaults) func(s *v1alpha1.PolicySpec) {
	return func(s *v1alpha1.PolicySpec) { s.Defaults = &d }
}

func withLimits(l v1alpha1.PolicyLimits) func(s *v1alpha1.PolicySpec) {
	return func(s *v1alpha1.PolicySpec) { s.Limits = &l }
}

func withSelector(key, value string) func(s *v1alpha1.PolicySpec) {
	return func(s *v1alpha1.PolicySpec) {
		s.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	}
}

// all returns the selection of all Policies.
func all(t *testing.T, policies ...v1alpha1.Policy) *Selection {
	t.Helper()
	set, err := NewSet(policies)
	if err != nil {
		t.Fatal(err)
	}
	return new(set.Select(nil))
}

// sourcedValue is a value and its source.
type sourcedValue struct {
	value any
	from  v1alpha1.ValueSource
	by    string
}

func valueWithSource(sources []v1alpha1.FieldSource, field string, value any) sourcedValue {
	for _, s := range sources {
		if s.Field == field {
			return sourcedValue{value, s.From, s.Policy}
		}
	}
	return sourcedValue{value: value}
}

func dereference[T any](pointer *T) any {
	if pointer == nil {
		return nil
	}
	return *pointer
}
