package scenario

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/test/require"
)

// readSessions reads the sessions of a file in examples/.
func readSessions(t *testing.T, name string) []v1alpha1.AgenticSession {
	t.Helper()
	file, err := os.Open(filepath.Join("../../../examples", name))
	require.NoError(t, err)
	defer file.Close()
	const buffer = 4096
	documents := utilyaml.NewYAMLOrJSONDecoder(file, buffer)
	var found []v1alpha1.AgenticSession
	for {
		var s v1alpha1.AgenticSession
		if documents.Decode(&s) != nil {
			return found
		}
		if s.Kind == "AgenticSession" {
			found = append(found, s)
		}
	}
}

func TestEverySessionHasAnExpectation(t *testing.T) {
	var want, got []string
	for _, s := range readSessions(t, SessionsFile) {
		want = append(want, s.Name)
		if errs := agenticsession.Validate(&s); len(errs) > 0 {
			t.Errorf("%s: validation: %v", s.Name, errs)
		}
	}
	for _, s := range SessionExamples() {
		got = append(got, s.Name)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("sessions of %s and expectations (-file +expectations):\n%s", SessionsFile, diff)
	}
}
