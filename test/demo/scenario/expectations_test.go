package scenario

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/test/require"
)

const examplesDirectory = "../../../examples/sequentialjob"

func TestEveryExampleFileHasAnExpectation(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(examplesDirectory, "*.yaml"))
	require.NoError(t, err)
	require.Equal(t, sortedNames(files, filepath.Base), sortedNames(Examples(), func(e Example) string { return e.File }))
}

func sortedNames[T any](all []T, name func(T) string) []string {
	var names []string
	for _, one := range all {
		names = append(names, name(one))
	}
	slices.Sort(names)
	return names
}

func TestReadmeShowsTheMinimalExample(t *testing.T) {
	readme, err := os.ReadFile("../../../README.md")
	require.NoError(t, err)
	content, err := os.ReadFile(filepath.Join(examplesDirectory, "minimal.yaml"))
	require.NoError(t, err)
	_, manifest, _ := strings.Cut(string(content), "\napiVersion")
	require.Contains(t, string(readme), "```yaml\napiVersion"+manifest+"```")
}

func TestEverySessionHasAnExpectation(t *testing.T) {
	file, err := os.Open(filepath.Join("../../../examples", SessionsFile))
	require.NoError(t, err)
	defer file.Close()
	const buffer = 4096
	documents := utilyaml.NewYAMLOrJSONDecoder(file, buffer)
	var names []string
	for s := (v1alpha1.AgenticSession{}); documents.Decode(&s) == nil; s = (v1alpha1.AgenticSession{}) {
		if s.Kind != "AgenticSession" {
			continue
		}
		names = append(names, s.Name)
		errs := agenticsession.Validate(&s)
		require.True(t, len(errs) == 0, "%s: validation: %v", s.Name, errs)
	}
	hasName := func(example SessionExample, name string) bool { return example.Name == name }
	require.True(t, slices.EqualFunc(SessionExamples(), names, hasName), "sessions %q, want %+v", names, SessionExamples())
}

func TestEveryStaleJobFileHasAnExpectationWithItsName(t *testing.T) {
	files, err := filepath.Glob("../../../examples/jobreport/*.yaml")
	require.NoError(t, err)
	var want []string
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		job := &batchv1.Job{}
		err = yaml.UnmarshalStrict(content, job)
		require.True(t, err == nil && job.Name+".yaml" == filepath.Base(file), "%s has a Job named %q: %v", file, job.Name, err)
		want = append(want, "jobreport/"+filepath.Base(file))
	}
	require.Equal(t, want, sortedNames(StaleJobs(), func(j StaleJob) string { return j.ManifestPath() }))
}
