package scenario

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/test/require"
)

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
