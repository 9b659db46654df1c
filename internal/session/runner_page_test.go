package session

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// What a runner finds is an interface: who writes one goes by the page.
func TestRunnerPageDocumentsRunnerEnvironment(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "runner.md"))
	if err != nil {
		t.Fatal(err)
	}
	s := newScenario(t, func(spec *v1alpha1.AgenticSessionSpec) { spec.Interactive = true })
	s.Runner.Spec.ActivityLease = true
	plan := s.decideAndRecord()
	if plan.CreateJob == nil {
		t.Fatal("there is no Job")
	}
	for _, variable := range plan.CreateJob.Spec.Template.Spec.Containers[0].Env {
		if !strings.Contains(string(page), "`"+variable.Name+"`") {
			t.Errorf("docs/runner.md does not tell of %s", variable.Name)
		}
	}
	for _, what := range []string{AnnotationRunFinished, secretsPath, homePath, tokenPath} {
		if !strings.Contains(string(page), what) {
			t.Errorf("docs/runner.md does not tell of %s", what)
		}
	}
}
