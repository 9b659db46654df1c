package scenario

import (
	"fmt"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/zombie"
)

// StaleJob is one file of examples/jobreport, and what the report says of it.
type StaleJob struct {
	// Name of the Job; with .yaml it is the file's.
	Name string
	// Category and Reason that it comes to, with the thresholds of Impatient.
	Category zombie.Category
	Reason   zombie.Reason
}

// StaleJobs are those of examples/jobreport, every one, in the order in which they are shown.
func StaleJobs() []StaleJob {
	return []StaleJob{
		{"failed", zombie.CategorySuspicious, zombie.ReasonBackoffLimitExceeded},
		{"hanging", zombie.CategoryZombie, zombie.ReasonRunningTooLong},
		{"never-starting", zombie.CategoryZombie, zombie.ReasonNoReadyPods},
		{"suspended", zombie.CategorySuspicious, zombie.ReasonSuspendedTooLong},
		{"healthy", zombie.CategoryHealthy, ""},
	}
}

// Impatient are thresholds for people who are watching.
func Impatient() zombie.Thresholds {
	thresholds := zombie.DefaultThresholds()
	*thresholds[zombie.ReasonNoReadyPods] = zombie.Threshold{Suspicious: 5 * time.Second, Zombie: 15 * time.Second}
	*thresholds[zombie.ReasonRunningTooLong] = zombie.Threshold{Suspicious: 5 * time.Second, Zombie: 15 * time.Second}
	thresholds[zombie.ReasonSuspendedTooLong].Suspicious = 5 * time.Second
	return thresholds
}

// Path of its manifest in examples/.
func (j *StaleJob) Path() string { return "jobreport/" + j.Name + ".yaml" }

// Finding is what the report says of it; nil if it says nothing.
func (j *StaleJob) Finding(status *v1alpha1.JobReportStatus) *v1alpha1.JobFinding {
	for i := range status.Findings {
		if status.Findings[i].Name == j.Name {
			return &status.Findings[i]
		}
	}
	return nil
}

// Fault is how the report differs from what it should say of the Job; empty if it does not.
func (j *StaleJob) Fault(status *v1alpha1.JobReportStatus) string {
	got, want := "no finding", "no finding"
	if finding := j.Finding(status); finding != nil {
		got = fmt.Sprintf("%s (%s)", finding.Category, finding.Reason)
	}
	if j.Category != zombie.CategoryHealthy {
		want = fmt.Sprintf("%s (%s)", j.Category, j.Reason)
	}
	if got != want {
		return fmt.Sprintf("%s: the report has %s, it should have %s", j.Name, got, want)
	}
	return ""
}
