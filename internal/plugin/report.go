package plugin

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
	"github.com/yardmaster/yardmaster/internal/report"
	"github.com/yardmaster/yardmaster/internal/zombie"
)

// The values of --fail-on.
const (
	failOnZombie     = "zombie"
	failOnSuspicious = "suspicious"
	failOnNever      = "never"
)

// reportCommand is `kubectl yardmaster report`.
type reportCommand struct {
	*environment

	allNamespaces        bool
	outputFormat, failOn string
	top                  int
	thresholds           zombie.Thresholds
}

func newReportCommand(env *environment) *cobra.Command {
	r := &reportCommand{environment: env, thresholds: zombie.DefaultThresholds()}
	command := &cobra.Command{
		Use:   "report",
		Short: "List stale Jobs and why they are stale",
		Long: "List stale Jobs and why they are stale. The plugin classifies the Jobs itself, so the operator does not have to be installed.\n\n" +
			"The exit code is 1 if there are zombies (see --fail-on), and 2 if the Jobs could not be read.",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return r.runReport(command.Context()) },
	}
	f := command.Flags()
	f.BoolVarP(&r.allNamespaces, "all-namespaces", "A", false, "Report the Jobs of all namespaces.")
	f.StringVarP(&r.outputFormat, "output", "o", outputTable, "Output format: table, json or yaml.")
	f.StringVar(&r.failOn, "fail-on", failOnZombie, "Findings for which the exit code is 1: zombie, suspicious (includes zombies) or never.")
	f.IntVar(&r.top, "top", report.MaxFindings, fmt.Sprintf("Number of stale Jobs to list per namespace, at most %d.", report.MaxFindings))
	for _, setting := range r.thresholds.Settings() {
		f.DurationVar(setting.Value, setting.Name, *setting.Value, setting.Usage)
	}
	return command
}

func (r *reportCommand) runReport(ctx context.Context) error {
	if err := r.validateFlags(); err != nil {
		return err
	}
	cluster, err := r.connect(r.clientConfig)
	if err != nil {
		return err
	}
	namespace := cluster.namespace
	if r.allNamespaces {
		namespace = ""
	}
	startTime := r.now()
	var tallies map[string]*report.Aggregator
	err = kube.ForEachJob(ctx, cluster, namespace,
		func() { tallies = map[string]*report.Aggregator{} },
		func(job *batchv1.Job) {
			if tallies[job.Namespace] == nil {
				tallies[job.Namespace] = report.NewAggregator(r.top)
			}
			finding := zombie.Classify(job, startTime, r.thresholds)
			tallies[job.Namespace].Add(report.Entry{Name: job.Name, UID: job.UID, Finding: finding})
		})
	if err != nil {
		return err
	}
	if len(tallies) == 0 && !r.allNamespaces {
		tallies[namespace] = report.NewAggregator(r.top)
	}
	reports := r.buildReports(tallies, startTime)
	if err := r.printReports(reports, tallies); err != nil {
		return err
	}
	if r.exceedsFailOn(reports) {
		return errUnsuccessful
	}
	return nil
}

func (r *reportCommand) validateFlags() error {
	if err := validateChoice("output", r.outputFormat, outputTable, outputJSON, outputYAML); err != nil {
		return err
	}
	if err := validateChoice("fail-on", r.failOn, failOnZombie, failOnSuspicious, failOnNever); err != nil {
		return err
	}
	if r.top < 0 || r.top > report.MaxFindings {
		return fmt.Errorf("invalid --top %d: must be between 0 and %d", r.top, report.MaxFindings)
	}
	if err := r.thresholds.Validate(); err != nil {
		return fmt.Errorf("--%w", err)
	}
	return nil
}

// buildReports returns the JobReports that the operator would write, ordered by namespace.
func (r *reportCommand) buildReports(tallies map[string]*report.Aggregator, startTime time.Time) []v1alpha1.JobReport {
	var reports []v1alpha1.JobReport
	for _, namespace := range slices.Sorted(maps.Keys(tallies)) {
		one := v1alpha1.JobReport{}
		one.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "JobReport"}
		one.Namespace, one.Name = namespace, v1alpha1.JobReportName
		scan := report.Scan{Jobs: tallies[namespace], StartTime: startTime, Duration: r.now().Sub(startTime)}
		one.Status = report.Decide(report.Observation{Report: &one, Scan: scan, Now: startTime}).Status
		reports = append(reports, one)
	}
	return reports
}

func (r *reportCommand) exceedsFailOn(reports []v1alpha1.JobReport) bool {
	return slices.ContainsFunc(reports, func(one v1alpha1.JobReport) bool {
		summary := &one.Status.Summary
		return r.failOn != failOnNever && summary.Zombie > 0 || r.failOn == failOnSuspicious && summary.Suspicious > 0
	})
}

func (r *reportCommand) printReports(reports []v1alpha1.JobReport, tallies map[string]*report.Aggregator) error {
	if r.outputFormat == outputTable {
		return r.printReportTable(reports, tallies)
	}
	list := v1alpha1.JobReportList{Items: reports}
	list.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "JobReportList"}
	if reports == nil {
		list.Items = []v1alpha1.JobReport{}
	}
	var printed any = list
	if !r.allNamespaces && len(reports) == 1 {
		printed = reports[0]
	}
	return printEncoded(r.out, r.outputFormat, printed)
}

// printReportTable prints the stale Jobs of each namespace, the stale first, and the number of
// Jobs in each category.
func (r *reportCommand) printReportTable(reports []v1alpha1.JobReport, tallies map[string]*report.Aggregator) error {
	now, style := r.now(), r.outputStyle()
	rows := [][]string{{"NAMESPACE", "JOB", "CATEGORY", "REASON", "FOR", "MESSAGE"}}
	total, omitted := v1alpha1.JobSummary{}, 0
	for i := range reports {
		status, stale := &reports[i].Status, tallies[reports[i].Namespace].TopEntries()
		for _, row := range stale {
			f := &row.Finding
			rows = append(rows, []string{reports[i].Namespace, row.Name, style.Colorize(categoryColors[f.Category], string(f.Category)), string(f.Reason), formatAge(f.Since, now), terminal.Sanitize(f.Message)})
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
	return terminal.WriteLines(r.out, append(lines, summary))
}

func formatAge(since, now time.Time) string {
	if since.IsZero() {
		return "-"
	}
	return duration.HumanDuration(max(0, now.Sub(since)))
}

var categoryColors = map[zombie.Category]terminal.Color{zombie.CategoryZombie: terminal.Red, zombie.CategorySuspicious: terminal.Yellow}
