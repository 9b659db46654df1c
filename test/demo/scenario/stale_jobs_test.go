package scenario

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/jobreport"
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

func TestMismatchBetweenReportAndExpectation(t *testing.T) {
	status := &v1alpha1.JobReportStatus{Findings: []v1alpha1.JobFinding{
		{Name: "hanging", JobFindingClass: v1alpha1.JobFindingClass{Category: v1alpha1.JobCategory(jobreport.CategoryZombie), Reason: string(jobreport.ReasonRunningTooLong)}},
	}}
	for name, row := range map[string]struct {
		job  StaleJob
		want string
	}{
		"an expected finding":          {StaleJob{"hanging", jobreport.CategoryZombie, jobreport.ReasonRunningTooLong}, ""},
		"no finding for a healthy Job": {StaleJob{"other", jobreport.CategoryHealthy, ""}, ""},
		"a missing finding":            {StaleJob{"other", jobreport.CategoryZombie, jobreport.ReasonNoReadyPods}, "other: the report has no finding, expected Zombie (NoReadyPods)"},
		"an unexpected finding":        {StaleJob{"hanging", jobreport.CategoryHealthy, ""}, "hanging: the report has Zombie (RunningTooLong), expected no finding"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, row.want, row.job.Mismatch(status))
		})
	}
}
