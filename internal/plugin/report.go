package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/jobreport"
	"github.com/yardmaster/yardmaster/internal/kube/joblist"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// The values of --fail-on.
const (
	failOnZombie     = "zombie"
	failOnSuspicious = "suspicious"
	failOnNever      = "never"
)

// groupByOwner is the value of --group-by that shows one line for the findings of an owner.
const groupByOwner = "owner"

type reportCommand struct {
	*environment
	objectSelection

	failOn, groupBy, format string
	top                     int
	fromCluster             bool
	thresholds              *thresholdFlags
}

func newReportCommand(env *environment) *cobra.Command {
	r := &reportCommand{environment: env}
	command := &cobra.Command{
		Use:   "report",
		Short: "List stale Jobs, why they are stale, and what to do",
		Long: "List stale Jobs and why they are stale. The plugin classifies the Jobs itself, so the operator does not have to be installed. " +
			"With --from-cluster, it shows the JobReports that the operator stored. The thresholds are those of the namespace's JobReport, " +
			"if it has one, unless a flag sets them.\n\n" +
			"The exit code is 1 if there are zombies (see --fail-on), and 2 if the Jobs could not be read.",
		Args:              rejectArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(command *cobra.Command, _ []string) error { return r.runReport(command) },
	}
	f := command.Flags()
	r.addSelectionFlags(command)
	addOutputFlag(command, &r.format, outputTable, outputWide, outputName, outputJSON, outputYAML)
	addChoiceFlag(command, f, &r.failOn, "fail-on", "", "Findings for which the exit code is 1: zombie, suspicious (includes zombies) or never.",
		failOnZombie, failOnSuspicious, failOnNever)
	f.StringVar(&r.groupBy, "group-by", "", "Show one line for the findings of the same owner and reason: owner.")
	f.BoolVar(&r.fromCluster, "from-cluster", false, "Show the JobReports that the operator stored, instead of classifying the Jobs.")
	f.IntVar(&r.top, "top", jobreport.MaxFindings, fmt.Sprintf("Number of stale Jobs to list per namespace, at most %d.", jobreport.MaxFindings))
	r.thresholds = addThresholdFlags(command)
	completeValues(command, "group-by", groupByOwner)
	command.AddCommand(newExplainJobCommand(env))
	return command
}

func (r *reportCommand) runReport(command *cobra.Command) error {
	if err := r.validateFlags(command); err != nil {
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
	var reports []namespaceReport
	if r.fromCluster {
		reports, err = r.readStoredReports(command.Context(), cluster, namespace)
	} else {
		reports, err = r.classifyJobs(command.Context(), cluster, namespace)
	}
	if err != nil {
		return err
	}
	if err := r.printReports(reports); err != nil {
		return err
	}
	for i := range reports {
		summary := &reports[i].Status.Summary
		if r.failOn != failOnNever && summary.Zombie > 0 || r.failOn == failOnSuspicious && summary.Suspicious > 0 {
			return errUnsuccessful
		}
	}
	return nil
}

// namespaceReport is the JobReport of a namespace and its lines in the table.
type namespaceReport struct {
	v1alpha1.JobReport

	findings []reportLine
	groups   []reportLine
}

var jobReportType = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "JobReport"}

// classifyJobs lists and classifies the Jobs of a namespace, or of all namespaces if it is empty.
func (r *reportCommand) classifyJobs(ctx context.Context, cluster *clusterConnection, namespace string) ([]namespaceReport, error) {
	selector, err := parseSelector(r.selector)
	if err != nil {
		return nil, err
	}
	thresholds, warning, err := r.readThresholds(ctx, cluster, namespace)
	if err != nil {
		return nil, err
	}
	startTime := r.now()
	var tallies map[string]*jobreport.Aggregator
	err = joblist.ForEach(ctx, cluster, namespace,
		func() { tallies = map[string]*jobreport.Aggregator{} },
		func(job *batchv1.Job) {
			if tallies[job.Namespace] == nil {
				tallies[job.Namespace] = jobreport.NewAggregator(r.top)
			}
			if !selector.Matches(labels.Set(job.Labels)) {
				tallies[job.Namespace].AddSuperseding(jobreport.SeriesOf(job))
				return
			}
			tallies[job.Namespace].Add(jobreport.NewEntry(job, startTime, thresholds(job.Namespace)))
		})
	if err != nil {
		return nil, err
	}
	fmt.Fprint(r.errOut, warning)
	if len(tallies) == 0 && !r.allNamespaces {
		if err := r.checkNamespaceExists(ctx, cluster); err != nil {
			return nil, err
		}
		tallies[namespace] = jobreport.NewAggregator(r.top)
	}
	return r.buildReports(tallies, thresholds, startTime), nil
}

// readThresholds returns the thresholds of each namespace: those of the flags, then of its JobReport, then the defaults. The warning
// is empty if they are known.
func (r *reportCommand) readThresholds(
	ctx context.Context, cluster *clusterConnection, namespace string,
) (thresholds func(namespace string) jobreport.Thresholds, warning string, err error) {
	list := &v1alpha1.JobReportList{}
	if warning, err = unknownThresholds(cluster.List(ctx, list, client.InNamespace(namespace))); err != nil {
		return nil, "", err
	}
	byNamespace := map[string]jobreport.Thresholds{}
	for i := range list.Items {
		byNamespace[list.Items[i].Namespace] = r.thresholds.with(&list.Items[i])
	}
	others := r.thresholds.with(&v1alpha1.JobReport{})
	return func(namespace string) jobreport.Thresholds {
		if known := byNamespace[namespace]; known != nil {
			return known
		}
		return others
	}, warning, nil
}

// unknownThresholds returns a warning for a user who may not read JobReports. A cluster without JobReports is no error.
func unknownThresholds(err error) (warning string, _ error) {
	switch {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return "", nil
	case isPermissionError(err):
		return "warning: you have no permission to read JobReports, so that the operator's thresholds are unknown: the defaults apply\n", nil
	case err != nil:
		return "", fmt.Errorf("reading the thresholds of JobReports: %w", err)
	}
	return "", nil
}

// thresholdFlags are flags for the thresholds of the rules.
type thresholdFlags struct {
	flags  *pflag.FlagSet
	values jobreport.Thresholds
}

func addThresholdFlags(command *cobra.Command) *thresholdFlags {
	t := &thresholdFlags{flags: command.Flags(), values: jobreport.DefaultThresholds()}
	for _, setting := range t.values.Settings() {
		addDurationFlag(command, setting.Value, setting.Name, setting.Usage)
	}
	return t
}

// with returns the thresholds of a stored report, so that the plugin and the operator agree about each Job, with the values of the
// flags that are set.
func (t *thresholdFlags) with(report *v1alpha1.JobReport) jobreport.Thresholds {
	thresholds := jobreport.DefaultThresholds().With(report.Status.Thresholds)
	given := t.values.Settings()
	for i, setting := range thresholds.Settings() {
		if t.flags.Changed(setting.Name) {
			*setting.Value = *given[i].Value
		}
	}
	return thresholds
}

// checkNamespaceExists returns an error if the namespace does not exist: a list of its Jobs succeeds and is empty. A user who may not
// read namespaces gets a warning.
func (r *reportCommand) checkNamespaceExists(ctx context.Context, cluster *clusterConnection) error {
	err := cluster.Get(ctx, client.ObjectKey{Name: cluster.namespace}, &corev1.Namespace{})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("namespace %q does not exist; list namespaces with kubectl get namespaces", cluster.namespace)
	case isPermissionError(err):
		fmt.Fprintf(r.errOut, "warning: found no Jobs, and you have no permission to check that namespace %q exists\n", cluster.namespace)
		return nil
	}
	return err
}

func (r *reportCommand) validateFlags(command *cobra.Command) error {
	if err := validateChoice("group-by", r.groupBy, "", groupByOwner); err != nil {
		return err
	}
	if r.top < 0 || r.top > jobreport.MaxFindings {
		return fmt.Errorf("invalid --top %d: must be between 0 and %d", r.top, jobreport.MaxFindings)
	}
	names := []string{"selector", "top"}
	for _, setting := range r.thresholds.values.Settings() {
		names = append(names, setting.Name)
	}
	for _, name := range names {
		if r.fromCluster && command.Flags().Changed(name) {
			return fmt.Errorf("--%s cannot be combined with --from-cluster: the operator's flags apply to stored reports", name)
		}
	}
	return nil
}

// buildReports returns the JobReports that the operator would write, ordered by namespace.
func (r *reportCommand) buildReports(
	tallies map[string]*jobreport.Aggregator, thresholds func(namespace string) jobreport.Thresholds, startTime time.Time,
) []namespaceReport {
	var reports []namespaceReport
	for _, namespace := range slices.Sorted(maps.Keys(tallies)) {
		tally := tallies[namespace]
		one := namespaceReport{JobReport: v1alpha1.JobReport{TypeMeta: jobReportType}}
		one.Namespace, one.Name = namespace, v1alpha1.JobReportName
		scan := jobreport.Scan{Jobs: tally, Thresholds: thresholds(namespace), StartTime: startTime, Duration: r.now().Sub(startTime)}
		one.Status = jobreport.Decide(jobreport.Observation{Report: &one.JobReport, Scan: scan, Now: startTime, Unstored: true}).Status
		one.findings, _ = storedLines(&one.Status)
		for _, group := range tally.Groups() {
			one.groups = append(one.groups, reportLine{
				name: group.Owner.String(), category: string(group.Category), severity: string(group.Severity),
				reason: string(group.Reason), message: group.Message, since: group.Newest, count: group.Count,
			})
		}
		one.groups = appendOwnerless(one.groups, one.findings)
		reports = append(reports, one)
	}
	return reports
}

var errNoStoredReport = errors.New("no JobReport exists: the operator reports only on the namespaces of its flag --report-namespaces")

// readStoredReports reads the JobReports of a namespace, or of all namespaces if it is empty. A report whose last scan failed is
// shown with a warning.
func (r *reportCommand) readStoredReports(ctx context.Context, cluster *clusterConnection, namespace string) ([]namespaceReport, error) {
	list := &v1alpha1.JobReportList{}
	if err := cluster.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	if len(list.Items) == 0 {
		return nil, errNoStoredReport
	}
	var reports []namespaceReport
	for i := range list.Items {
		one := namespaceReport{JobReport: list.Items[i]}
		one.TypeMeta, one.ManagedFields = jobReportType, nil
		one.findings, one.groups = storedLines(&one.Status)
		ready := meta.FindStatusCondition(one.Status.Conditions, v1alpha1.ConditionReady)
		switch {
		case ready != nil && ready.Status == metav1.ConditionFalse:
			fmt.Fprintf(r.errOut, "warning: the last scan of namespace %s failed (%s): %s\n", one.Namespace, ready.Reason, terminal.Sanitize(ready.Message))
		case one.Status.LastScanTime == nil:
			fmt.Fprintf(r.errOut, "warning: namespace %s has not been scanned yet\n", one.Namespace)
		}
		reports = append(reports, one)
	}
	return reports, nil
}

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
	if isWide && !isGrouped {
		_, next := jobreport.NextStep(jobreport.Reason(line.reason), namespace, line.name)
		add("NEXT", terminal.Sanitize(next))
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
		counted[groupName(group.Owner, group.Category, group.Reason)] = true
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
			message: newest[groupName(group.Owner, group.Category, group.Reason)].message,
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
