package manager

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func known() []Controller {
	group := schema.GroupVersion{Group: "yard.example", Version: "v1"}
	return []Controller{
		{Name: "crane", Kind: group.WithKind("Crane")},
		{Name: "switch", Kind: group.WithKind("Switch")},
	}
}

func TestSelect(t *testing.T) {
	for selectors, want := range map[string][]string{
		"*":              {"crane", "switch"},
		"crane":          {"crane"},
		"*,-switch":      {"crane"},
		"-switch,*":      {"crane"},
		"switch,crane":   {"crane", "switch"},
		"switch,-switch": {"switch"},
	} {
		t.Run(selectors, func(t *testing.T) {
			selected, err := Select(known(), list(selectors))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, names(selected)); diff != "" {
				t.Errorf("selected (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSelectRefuses(t *testing.T) {
	for selectors, want := range map[string]string{
		"crane,tram": `unknown controller "tram" in --controllers, known are: crane, switch`,
		"*,-tram":    `unknown controller "tram" in --controllers, known are: crane, switch`,
		"-crane":     "leaves no controller to run, known are: crane, switch",
		"":           "leaves no controller to run, known are: crane, switch",
	} {
		t.Run(selectors, func(t *testing.T) {
			_, err := Select(known(), list(selectors))
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want one with %q", err, want)
			}
		})
	}
}

func TestCheckInstalled(t *testing.T) {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(known()[0].Kind, meta.RESTScopeNamespace)

	if err := checkInstalled(mapper, known()[:1]); err != nil {
		t.Errorf("all is installed, yet: %v", err)
	}
	err := checkInstalled(mapper, known())
	want := "controller switch needs the CustomResourceDefinition of Switch.yard.example, which is not installed"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want one with %q", err, want)
	}
}

func TestWhatAControllerWatchesMustBeInstalledToo(t *testing.T) {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(known()[0].Kind, meta.RESTScopeNamespace)
	crane := known()[0]
	crane.Needs = []schema.GroupVersionKind{known()[1].Kind}
	err := checkInstalled(mapper, []Controller{crane})
	want := "controller crane needs the CustomResourceDefinition of Switch.yard.example, which is not installed"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want one with %q", err, want)
	}
}
