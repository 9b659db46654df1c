package operator

import (
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	admissionregistrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/yardmaster/yardmaster/internal/kube/flagenv"
	"github.com/yardmaster/yardmaster/test/require"
)

func knownControllers() []Controller {
	group := schema.GroupVersion{Group: "yard.example", Version: "v1"}
	return []Controller{
		{Name: "crane", Kind: group.WithKind("Crane")},
		{Name: "switch", Kind: group.WithKind("Switch")},
	}
}

func TestSelectControllers(t *testing.T) {
	for selectors, want := range map[string][]string{
		"*":              {"crane", "switch"},
		"crane":          {"crane"},
		"*,-switch":      {"crane"},
		"-switch,*":      {"crane"},
		"switch,crane":   {"crane", "switch"},
		"switch,-switch": {"switch"},
	} {
		t.Run(selectors, func(t *testing.T) {
			selected, err := SelectControllers(knownControllers(), flagenv.SplitList(selectors))
			require.NoError(t, err)
			require.Equal(t, want, controllerNames(selected))
		})
	}
}

func TestMissingCustomResourceDefinitionsAreReported(t *testing.T) {
	mapper := meta.NewDefaultRESTMapper(nil)
	crane, other := knownControllers()[0], knownControllers()[1]
	mapper.Add(crane.Kind, meta.RESTScopeNamespace)
	watching := crane
	watching.Needs = []schema.GroupVersionKind{other.Kind}
	const missing = " needs the CustomResourceDefinition of Switch.yard.example, which is not installed"
	for title, row := range map[string]struct {
		controllers []Controller
		want        string
	}{
		"everything is installed":        {[]Controller{crane}, ""},
		"the kind of a controller":       {[]Controller{crane, other}, "controller switch" + missing},
		"a kind that a controller needs": {[]Controller{watching}, "controller crane" + missing},
	} {
		t.Run(title, func(t *testing.T) {
			err := checkInstalled(mapper, row.controllers)
			if (err != nil) != (row.want != "") || err != nil && !strings.Contains(err.Error(), row.want) {
				t.Errorf("error %v, want one with %q", err, row.want)
			}
		})
	}
}

func TestOperatorRefusesToRunWhereNothingRecordsTheCreatorsOfSessions(t *testing.T) {
	without, with := meta.NewDefaultRESTMapper(nil), meta.NewDefaultRESTMapper(nil)
	without.Add(admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicy"), meta.RESTScopeRoot)
	without.Add(admissionregistrationv1beta1.SchemeGroupVersion.WithKind("MutatingAdmissionPolicy"), meta.RESTScopeRoot)
	with.Add(admissionregistrationv1.SchemeGroupVersion.WithKind("MutatingAdmissionPolicy"), meta.RESTScopeRoot)
	sessions := []Controller{{Name: "queue"}, {Name: "agenticsession", Mutates: true}}
	for name, test := range map[string]struct {
		mapper  meta.RESTMapper
		options Options
		refused bool
	}{
		"with the webhook":                       {mapper: without, options: Options{Webhook: WebhookOptions{Enabled: true, Mutating: true}, Controllers: sessions}},
		"with the policy":                        {mapper: with, options: Options{Webhook: WebhookOptions{Enabled: true}, Controllers: sessions}},
		"with neither":                           {mapper: without, options: Options{Webhook: WebhookOptions{Enabled: true}, Controllers: sessions}, refused: true},
		"with neither, and without sessions":     {mapper: without, options: Options{Webhook: WebhookOptions{Enabled: true}, Controllers: sessions[:1]}},
		"without any webhook, as in development": {mapper: without, options: Options{Controllers: sessions}},
	} {
		t.Run(name, func(t *testing.T) {
			err := checkCreatorsAreRecorded(test.mapper, test.options)
			require.True(t, (err != nil) == test.refused, "error %v, refused should be %t", err, test.refused)
		})
	}
}
