package session

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// What a runner finds is an interface: who writes one goes by the page.
func TestTheRunnersPageHasAllThatARunnerIsGiven(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "runner.md"))
	if err != nil {
		t.Fatal(err)
	}
	s := scenery(t, func(spec *v1alpha1.AgenticSessionSpec) { spec.Interactive = true })
	s.Runner.Spec.ActivityLease = true
	plan := s.decide()
	if plan.Create == nil {
		t.Fatal("there is no Job")
	}
	for _, variable := range plan.Create.Spec.Template.Spec.Containers[0].Env {
		if !strings.Contains(string(page), "`"+variable.Name+"`") {
			t.Errorf("docs/runner.md does not tell of %s", variable.Name)
		}
	}
	for _, what := range []string{AnnotationFinished, secretsPath, homePath, tokenPath} {
		if !strings.Contains(string(page), what) {
			t.Errorf("docs/runner.md does not tell of %s", what)
		}
	}
}
