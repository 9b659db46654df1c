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
			var names []string
			for _, p := range NewSet(test.policies).Select(map[string]string{"team": "mail"}) {
				names = append(names, p.Name)
			}
			if got := strings.Join(names, " "); got != test.want {
				t.Errorf("selected %q, want %q", got, test.want)
			}
		})
	}
}

func TestInvalidSelectorSelectsNothing(t *testing.T) {
	broken := newPolicy("broken", 5)
	withInvalidSelector(&broken.Spec)
	selected := NewSet([]v1alpha1.Policy{broken, newPolicy("fine", 0)}).Select(nil)
	if len(selected) != 1 || selected[0].Name != "fine" {
		t.Errorf("selected %v, want the other", selected)
	}
}
