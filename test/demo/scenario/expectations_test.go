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
	"github.com/yardmaster/yardmaster/internal/kinds/sequentialjob"
	"github.com/yardmaster/yardmaster/test/require"
)

const examplesDirectory = "../../../examples/sequentialjob"

func TestEveryExampleFileHasAnExpectation(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(examplesDirectory, "*.yaml"))
	require.NoError(t, err)
	var want, got []string
	for _, file := range files {
		want = append(want, filepath.Base(file))
	}
	for _, example := range Examples() {
		got = append(got, example.File)
	}
	slices.Sort(want)
	slices.Sort(got)
	require.Equal(t, want, got)
}

func TestExpectationsMatchTheStepsOfTheExamples(t *testing.T) {
	for _, example := range Examples() {
		t.Run(example.ObjectName(), func(t *testing.T) {
			content, err := os.ReadFile(filepath.Join(examplesDirectory, example.File))
			require.NoError(t, err)
			sj := &v1alpha1.SequentialJob{}
			require.NoError(t, yaml.UnmarshalStrict(content, sj))
			require.True(t, sj.Name == example.ObjectName(), "it is named %q, expected the name of its file", sj.Name)
			errs := sequentialjob.Validate(sj)
			if refused := len(errs) > 0; refused != (example.Refused != "") {
				t.Errorf("validation: %v", errs)
			}
			if !example.IsApplied() {
				return
			}
			var want, got []string
			for _, step := range sj.Spec.Containers {
				want = append(want, step.Name)
			}
			for _, step := range example.Steps {
				got = append(got, step.Name)
			}
			require.Equal(t, want, got)
		})
	}
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
	var want, got []string
	for {
		var s v1alpha1.AgenticSession
		if documents.Decode(&s) != nil {
			break
		}
		if s.Kind != "AgenticSession" {
			continue
		}
		want = append(want, s.Name)
		if errs := agenticsession.Validate(&s); len(errs) > 0 {
			t.Errorf("%s: validation: %v", s.Name, errs)
		}
	}
	for _, s := range SessionExamples() {
		got = append(got, s.Name)
	}
	require.Equal(t, want, got)
}

func TestEveryStaleJobFileHasAnExpectationWithItsName(t *testing.T) {
	files, err := filepath.Glob("../../../examples/jobreport/*.yaml")
	require.NoError(t, err)
	var want, got []string
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		job := &batchv1.Job{}
		if err := yaml.UnmarshalStrict(content, job); err != nil || job.Name+".yaml" != filepath.Base(file) {
			t.Errorf("%s has a Job named %q: %v", file, job.Name, err)
		}
		want = append(want, "jobreport/"+filepath.Base(file))
	}
	for _, job := range StaleJobs() {
		got = append(got, job.ManifestPath())
	}
	slices.Sort(got)
	require.Equal(t, want, got)
}
