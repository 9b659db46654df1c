package agenticsession

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// The environment of a runner is an interface, which docs/runner.md documents.
func TestRunnerPageDocumentsRunnerEnvironment(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "runner.md"))
	if err != nil {
		t.Fatal(err)
	}
	s := newScenario(t, func(spec *v1alpha1.AgenticSessionSpec) { spec.Interactive = true })
	s.Runner.Spec.ActivityLease = true
	decision := s.decideAndRecord()
	if decision.CreateJob == nil {
		t.Fatal("no Job is created")
	}
	for _, variable := range decision.CreateJob.Spec.Template.Spec.Containers[0].Env {
		if !strings.Contains(string(page), "`"+variable.Name+"`") {
			t.Errorf("docs/runner.md does not document %s", variable.Name)
		}
	}
	for _, name := range []string{AnnotationRunFinished, secretsPath, homePath, tokenPath} {
		if !strings.Contains(string(page), name) {
			t.Errorf("docs/runner.md does not document %s", name)
		}
	}
}
