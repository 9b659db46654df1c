package policy

import (
	"strings"
	"testing"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

func TestPoliciesAreSelectedByLabelsInOrderOfPrecedence(t *testing.T) {
	for title, test := range map[string]struct {
		policies []v1alpha1.Policy
		want     string
	}{
		"a Policy without a selector selects all objects": {[]v1alpha1.Policy{newPolicy("a", 0)}, "a"},
		"a selector selects by labels":                    {[]v1alpha1.Policy{newPolicy("a", 0, withSelector("team", "mail")), newPolicy("b", 0, withSelector("team", "web"))}, "a"},
		"the highest precedence comes first":              {[]v1alpha1.Policy{newPolicy("a", 1), newPolicy("b", 10), newPolicy("c", -1)}, "b a c"},
		"equal precedence is ordered by name":             {[]v1alpha1.Policy{newPolicy("b", 0), newPolicy("a", 0)}, "a b"},
		"no Policies":                                     {nil, ""},
	} {
		t.Run(title, func(t *testing.T) {
			set, err := NewSet(test.policies)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, p := range set.Select(map[string]string{"team": "mail"}) {
				names = append(names, p.Name)
			}
			if got := strings.Join(names, " "); got != test.want {
				t.Errorf("selected %q, want %q", got, test.want)
			}
		})
	}
}

func TestInvalidSelectorSelectsNothingAndIsReported(t *testing.T) {
	broken := newPolicy("broken", 5)
	withInvalidSelector(&broken.Spec)
	set, err := NewSet([]v1alpha1.Policy{broken, newPolicy("fine", 0)})
	if selected := set.Select(nil); len(selected) != 1 || selected[0].Name != "fine" {
		t.Errorf("selected %v, want the other", selected)
	}
	if err == nil || !strings.HasPrefix(err.Error(), "policy broken: spec.selector: ") {
		t.Errorf("error %v, want one that names the policy and the field", err)
	}
}
