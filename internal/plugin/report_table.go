package plugin

import (
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
	"github.com/yardmaster/yardmaster/internal/report"
	"github.com/yardmaster/yardmaster/internal/zombie"
)

// printReportTable prints the stale Jobs of each namespace, the stale first, and the number of
// Jobs in each category.
func printReportTable(out io.Writer, reports []v1alpha1.JobReport, tallies map[string]*report.Aggregator, now time.Time, style terminal.Style) error {
	rows := [][]string{{"NAMESPACE", "JOB", "CATEGORY", "REASON", "FOR", "MESSAGE"}}
	total, omitted := v1alpha1.JobSummary{}, 0
	for i := range reports {
		status, stale := &reports[i].Status, tallies[reports[i].Namespace].TopEntries()
		for _, row := range stale {
			f := &row.Finding
			rows = append(rows, []string{reports[i].Namespace, row.Name, style.Colorize(categoryColor(f.Category), string(f.Category)), string(f.Reason), formatAge(f.Since, now), terminal.Sanitize(f.Message)})
		}
		total.Total += status.Summary.Total
		total.Healthy += status.Summary.Healthy
		total.Suspicious += status.Summary.Suspicious
		total.Zombie += status.Summary.Zombie
		omitted += int(status.Summary.Suspicious+status.Summary.Zombie) - len(stale)
	}
	var lines []string
	if len(rows) > 1 {
		lines = append(terminal.AlignColumns(rows), "")
	}
	summary := fmt.Sprintf("%d Jobs: %d healthy, %d suspicious, %d zombie", total.Total, total.Healthy, total.Suspicious, total.Zombie)
	if omitted > 0 {
		summary += fmt.Sprintf("; %d not shown", omitted)
	}
	return terminal.WriteLines(out, append(lines, summary))
}

func formatAge(since, now time.Time) string {
	if since.IsZero() {
		return "-"
	}
	return duration.HumanDuration(max(0, now.Sub(since)))
}

func categoryColor(category zombie.Category) terminal.Color {
	switch category {
	case zombie.CategoryZombie:
		return terminal.Red
	case zombie.CategorySuspicious:
		return terminal.Yellow
	default:
		return ""
	}
}
