package scenario

import (
	"fmt"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/jobreport"
)

// StaleJob is a Job of examples/jobreport and its expected finding.
type StaleJob struct {
	// Name is the name of the Job. With .yaml it is the name of the file.
	Name string
	// Category and Reason are the expected classification with DemoThresholds.
	Category jobreport.Category
	Reason   jobreport.Reason
}

// StaleJobs returns all Jobs of examples/jobreport in the order of the demo.
func StaleJobs() []StaleJob {
	return []StaleJob{
		{"failed", jobreport.CategorySuspicious, jobreport.ReasonBackoffLimitExceeded},
		{"hanging", jobreport.CategoryZombie, jobreport.ReasonRunningTooLong},
		{"never-starting", jobreport.CategoryZombie, jobreport.ReasonNoReadyPods},
		{"suspended", jobreport.CategorySuspicious, jobreport.ReasonSuspendedTooLong},
		{"healthy", jobreport.CategoryHealthy, ""},
	}
}

// DemoThresholds returns thresholds that are short enough for a demo.
func DemoThresholds() jobreport.Thresholds {
	thresholds := jobreport.DefaultThresholds()
	*thresholds[jobreport.ReasonNoReadyPods] = jobreport.Threshold{Suspicious: 5 * time.Second, Zombie: 15 * time.Second}
	*thresholds[jobreport.ReasonRunningTooLong] = jobreport.Threshold{Suspicious: 5 * time.Second, Zombie: 15 * time.Second}
	thresholds[jobreport.ReasonSuspendedTooLong].Suspicious = 5 * time.Second
	return thresholds
}

// ManifestPath returns the path of the manifest in examples/.
func (j *StaleJob) ManifestPath() string { return "jobreport/" + j.Name + ".yaml" }

// Finding returns the report's finding about the Job, or nil.
func (j *StaleJob) Finding(status *v1alpha1.JobReportStatus) *v1alpha1.JobFinding {
	for i := range status.Findings {
		if status.Findings[i].Name == j.Name {
			return &status.Findings[i]
		}
	}
	return nil
}

// Mismatch describes how the finding differs from the expectation, or returns "".
func (j *StaleJob) Mismatch(status *v1alpha1.JobReportStatus) string {
	got, want := "no finding", "no finding"
	if finding := j.Finding(status); finding != nil {
		got = fmt.Sprintf("%s (%s)", finding.Category, finding.Reason)
	}
	if j.Category != jobreport.CategoryHealthy {
		want = fmt.Sprintf("%s (%s)", j.Category, j.Reason)
	}
	if got != want {
		return fmt.Sprintf("%s: the report has %s, expected %s", j.Name, got, want)
	}
	return ""
}
