package plugin

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/jobreport"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

func (r *reportCommand) printReports(reports []namespaceReport) error {
	switch r.format {
	case outputTable, outputWide:
		return r.printReportTable(reports)
	case outputName:
		var lines []string
		for i := range reports {
			for _, line := range reports[i].findings {
				lines = append(lines, "job.batch/"+line.name)
			}
		}
		return terminal.WriteLines(r.out, lines)
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

// printReportTable prints the stale Jobs of each namespace, the most important first, and the number of Jobs in each category.
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
			header, row := r.tableRow(reports[i].Namespace, &line)
			if len(rows) == 0 {
				rows = append(rows, header)
			}
			rows = append(rows, row)
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
		lines = append(terminal.AlignColumns(rows), "")
	}
	summary := fmt.Sprintf("%d Jobs: %d healthy, %d suspicious, %d zombie", total.Total, total.Healthy, total.Suspicious, total.Zombie)
	if total.Ignored > 0 {
		summary += fmt.Sprintf(", %d ignored", total.Ignored)
	}
	if omitted > 0 {
		summary += fmt.Sprintf("; %d not shown", omitted)
	}
	return terminal.WriteLines(r.out, append(lines, summary))
}

// tableRow returns the row of a line, and the header above it.
func (r *reportCommand) tableRow(namespace string, line *reportLine) (header, row []string) {
	add := func(title, cell string) { header, row = append(header, title), append(row, cell) }
	name, age := terminal.Sanitize(line.name), formatAge(line.since, r.now())
	isGrouped, isWide := r.groupBy == groupByOwner, r.format == outputWide
	add("NAMESPACE", namespace)
	if isGrouped {
		add("OWNER", name)
		add("JOBS", strconv.Itoa(int(line.count)))
	} else {
		add("JOB", name)
	}
	add("CATEGORY", r.outputStyle().Colorize(categoryColors[line.category], line.category))
	add("REASON", line.reason)
	if isGrouped {
		add("NEWEST", age)
	} else {
		add("FOR", age)
	}
	if isWide && !isGrouped {
		add("OWNER", cmp.Or(terminal.Sanitize(line.owner), "-"))
	}
	add("MESSAGE", terminal.Sanitize(line.message))
	if isWide {
		add("NEXT", jobreport.NextStep(jobreport.Reason(line.reason)))
	}
	return header, row
}

var categoryColors = map[string]terminal.Color{string(jobreport.CategoryZombie): terminal.Red, string(jobreport.CategorySuspicious): terminal.Yellow}

// reportLine is a finding, or a group of findings, in the table.
type reportLine struct {
	name, uid, owner, category, severity, reason, message string
	since                                                 time.Time
	count                                                 int32
}

// appendOwnerless appends a line for each Job without an owner, and orders the lines.
func appendOwnerless(groups, findings []reportLine) []reportLine {
	for _, line := range findings {
		if line.owner == "" {
			line.name = "Job/" + line.name
			groups = append(groups, line)
		}
	}
	sortLines(groups)
	return groups
}

// sortLines orders lines as a scan orders findings: severe findings first, then new findings.
func sortLines(lines []reportLine) {
	rank := func(severity string) int {
		return slices.Index([]string{string(jobreport.SeverityHigh), string(jobreport.SeverityMedium), string(jobreport.SeverityLow)}, severity)
	}
	slices.SortStableFunc(lines, func(a, b reportLine) int {
		return cmp.Or(
			cmp.Compare(rank(a.severity), rank(b.severity)), b.since.Compare(a.since),
			cmp.Compare(b.count, a.count), cmp.Compare(a.uid, b.uid), cmp.Compare(a.name, b.name),
		)
	})
}

// storedLines returns the lines of a stored report. It lists only some of the groups' findings, so a group is one line only if the
// report counts it.
func storedLines(status *v1alpha1.JobReportStatus) (findings, groups []reportLine) {
	newest := map[string]reportLine{}
	counted := map[string]bool{}
	for i := range status.Groups {
		group := &status.Groups[i]
		counted[groupName(&group.Owner, group.Category, group.Reason)] = true
	}
	for i := range status.Findings {
		finding := &status.Findings[i]
		line := reportLine{
			name: finding.Name, uid: string(finding.UID), category: string(finding.Category), severity: string(finding.Severity), reason: finding.Reason,
			message: finding.Message, since: ptr.Deref(finding.Since, metav1.Time{}).Time, count: 1,
		}
		if finding.Owner != nil {
			line.owner = finding.Owner.Kind + "/" + finding.Owner.Name
			key := groupName(finding.Owner, finding.Category, finding.Reason)
			if known, found := newest[key]; !found || line.since.After(known.since) {
				newest[key] = line
			}
			if !counted[key] {
				single := line
				single.name = line.owner
				groups = append(groups, single)
			}
		}
		findings = append(findings, line)
	}
	for i := range status.Groups {
		group := &status.Groups[i]
		groups = append(groups, reportLine{
			name: group.Owner.Kind + "/" + group.Owner.Name, category: string(group.Category), severity: string(group.Severity), reason: group.Reason,
			message: newest[groupName(&group.Owner, group.Category, group.Reason)].message,
			since:   ptr.Deref(group.Newest, metav1.Time{}).Time, count: group.Count,
		})
	}
	sortLines(findings)
	return findings, appendOwnerless(groups, findings)
}

func groupName(owner *v1alpha1.JobOwner, category v1alpha1.JobCategory, reason string) string {
	return fmt.Sprintf("%s/%s/%s/%s", owner.Kind, owner.Name, category, reason)
}

func formatAge(since, now time.Time) string {
	if since.IsZero() {
		return "-"
	}
	return duration.HumanDuration(max(0, now.Sub(since)))
}
