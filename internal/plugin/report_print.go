package plugin

import (
	"fmt"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/jobreport"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

func (r *reportCommand) printReports(reports []namespaceReport) error {
	switch r.format {
	case outputTable, outputWide:
		return r.printReportTable(reports)
	case outputName:
		return r.printJobNames(reports)
	}
	list := v1alpha1.JobReportList{Items: []v1alpha1.JobReport{}}
	list.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "JobReportList"}
	for i := range reports {
		list.Items = append(list.Items, reports[i].JobReport)
	}
	var printed any = list
	if !r.allNamespaces && len(reports) == 1 {
		printed = reports[0].JobReport
	}
	return printEncoded(r.out, r.format, printed)
}

// printJobNames prints the stale Jobs as arguments for kubectl.
func (r *reportCommand) printJobNames(reports []namespaceReport) error {
	var lines []string
	for i := range reports {
		for _, line := range reports[i].findings {
			lines = append(lines, "job.batch/"+line.name)
		}
	}
	return terminal.WriteLines(r.out, lines)
}

// printReportTable prints the stale Jobs of each namespace, the most important first, and the number
// of Jobs in each category.
func (r *reportCommand) printReportTable(reports []namespaceReport) error {
	var rows [][]string
	total, omitted := v1alpha1.JobSummary{}, int32(0)
	for i := range reports {
		summary, lines := &reports[i].Status.Summary, reports[i].findings
		if r.groupBy == groupByOwner {
			lines = reports[i].groups
		}
		omitted += summary.Suspicious + summary.Zombie
		for _, line := range lines {
			rows = append(rows, r.tableRow(reports[i].Namespace, &line))
			omitted -= line.count
		}
		total.Total += summary.Total
		total.Healthy += summary.Healthy
		total.Suspicious += summary.Suspicious
		total.Zombie += summary.Zombie
		total.Ignored += summary.Ignored
	}
	var lines []string
	if len(rows) > 0 {
		rows = append([][]string{r.tableHeader()}, rows...)
		lines = append(terminal.AlignColumns(rows), "")
	}
	return terminal.WriteLines(r.out, append(lines, summaryLine(&total, omitted)))
}

func (r *reportCommand) tableHeader() []string {
	header := []string{"NAMESPACE", "JOB", "CATEGORY", "REASON", "FOR", "MESSAGE"}
	if r.groupBy == groupByOwner {
		header = []string{"NAMESPACE", "OWNER", "JOBS", "CATEGORY", "REASON", "NEWEST", "MESSAGE"}
	}
	if r.format == outputWide {
		header = append(header[:len(header)-1], "OWNER", "MESSAGE", "NEXT")
		if r.groupBy == groupByOwner {
			header = []string{"NAMESPACE", "OWNER", "JOBS", "CATEGORY", "REASON", "NEWEST", "MESSAGE", "NEXT"}
		}
	}
	return header
}

func (r *reportCommand) tableRow(namespace string, line *reportLine) []string {
	row := []string{namespace, terminal.Sanitize(line.name)}
	if r.groupBy == groupByOwner {
		row = append(row, strconv.Itoa(int(line.count)))
	}
	row = append(row, r.outputStyle().Colorize(categoryColors[line.category], line.category), line.reason, formatAge(line.since, r.now()))
	if r.format == outputWide && r.groupBy != groupByOwner {
		row = append(row, orDash(terminal.Sanitize(line.owner)))
	}
	row = append(row, terminal.Sanitize(line.message))
	if r.format == outputWide {
		row = append(row, jobreport.NextStep(jobreport.Reason(line.reason)))
	}
	return row
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func summaryLine(total *v1alpha1.JobSummary, omitted int32) string {
	var line strings.Builder
	fmt.Fprintf(&line, "%d Jobs: %d healthy, %d suspicious, %d zombie", total.Total, total.Healthy, total.Suspicious, total.Zombie)
	if total.Ignored > 0 {
		fmt.Fprintf(&line, ", %d ignored", total.Ignored)
	}
	if omitted > 0 {
		fmt.Fprintf(&line, "; %d not shown", omitted)
	}
	return line.String()
}

var categoryColors = map[string]terminal.Color{string(jobreport.CategoryZombie): terminal.Red, string(jobreport.CategorySuspicious): terminal.Yellow}
