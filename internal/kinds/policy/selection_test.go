package policy

import (
	"strings"
	"testing"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
)

// namedPolicy returns a Policy whose place in a selection can be read from its list of images.
func namedPolicy(name string, precedence int32, changes ...func(*v1alpha1.PolicySpec)) v1alpha1.Policy {
	return newPolicy(name, precedence, append(changes, withLimits(v1alpha1.PolicyLimits{AllowedImages: []string{"*"}}))...)
}

// selectedNames returns the Policies that select an object with these labels, in order.
func selectedNames(set Set, object map[string]string) string {
	var names []string
	for _, rule := range set.Select(object).images {
		names = append(names, rule.policy)
	}
	return strings.Join(names, " ")
}

func TestPoliciesAreSelectedByLabelsInOrderOfPrecedence(t *testing.T) {
	for title, test := range map[string]struct {
		policies []v1alpha1.Policy
		want     string
	}{
		"a Policy without a selector selects all objects": {[]v1alpha1.Policy{namedPolicy("a", 0)}, "a"},
		"a selector selects by labels":                    {[]v1alpha1.Policy{namedPolicy("a", 0, withSelector("team", "mail")), namedPolicy("b", 0, withSelector("team", "web"))}, "a"},
		"a Policy with a selector beside one without":     {[]v1alpha1.Policy{namedPolicy("a", 0, withSelector("team", "mail")), namedPolicy("c", 0)}, "a c"},
		"the highest precedence comes first":              {[]v1alpha1.Policy{namedPolicy("a", 1), namedPolicy("b", 10), namedPolicy("c", -1)}, "b a c"},
		"equal precedence is ordered by name":             {[]v1alpha1.Policy{namedPolicy("b", 0), namedPolicy("a", 0)}, "a b"},
		"no Policies":                                     {nil, ""},
	} {
		t.Run(title, func(t *testing.T) {
			set, err := NewSet(test.policies)
			require.NoError(t, err)
			require.Equal(t, test.want, selectedNames(set, map[string]string{"team": "mail"}))
		})
	}
}

func TestInvalidSelectorSelectsNothingAndIsReported(t *testing.T) {
	broken := namedPolicy("broken", 5)
	withInvalidSelector(&broken.Spec)
	set, err := NewSet([]v1alpha1.Policy{broken, namedPolicy("fine", 0)})
	require.Equal(t, "fine", selectedNames(set, nil))
	require.ErrorContains(t, err, "policy broken: spec.selector: ")
}
