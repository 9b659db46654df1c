package scenario

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/zombie"
)

func TestEveryStaleJobHasItsStory(t *testing.T) {
	files, err := filepath.Glob("../../../examples/jobreport/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, file := range files {
		want = append(want, "jobreport/"+filepath.Base(file))
	}
	for _, job := range StaleJobs() {
		got = append(got, job.Path())
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files of examples/jobreport and stories (-files +stories):\n%s", diff)
	}
}

func TestStaleJobsAreNamedAsTheirFiles(t *testing.T) {
	for _, story := range StaleJobs() {
		content, err := os.ReadFile(filepath.Join("../../../examples", story.Path()))
		if err != nil {
			t.Fatal(err)
		}
		job := &batchv1.Job{}
		if err := yaml.UnmarshalStrict(content, job); err != nil {
			t.Errorf("%s: %v", story.Path(), err)
		}
		if job.Name != story.Name {
			t.Errorf("%s is named %q", story.Path(), job.Name)
		}
	}
}

func TestAFaultIsWhatTheReportShouldNotSay(t *testing.T) {
	status := &v1alpha1.JobReportStatus{Findings: []v1alpha1.JobFinding{
		{Name: "hanging", Category: v1alpha1.JobCategory(zombie.CategoryZombie), Reason: string(zombie.ReasonRunningTooLong)},
	}}
	for name, row := range map[string]struct {
		job  StaleJob
		want string
	}{
		"found as it should be":           {StaleJob{"hanging", zombie.CategoryZombie, zombie.ReasonRunningTooLong}, ""},
		"healthy, and not spoken of":      {StaleJob{"other", zombie.CategoryHealthy, ""}, ""},
		"not found":                       {StaleJob{"other", zombie.CategoryZombie, zombie.ReasonNoReadyPods}, "other: the report has no finding, it should have Zombie (NoReadyPods)"},
		"found, and should not have been": {StaleJob{"hanging", zombie.CategoryHealthy, ""}, "hanging: the report has Zombie (RunningTooLong), it should have no finding"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := row.job.Fault(status); got != row.want {
				t.Errorf("%q, want %q", got, row.want)
			}
		})
	}
}
