package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/zombie"
	"github.com/yardmaster/yardmaster/test/demo/scenario"
	"github.com/yardmaster/yardmaster/test/demo/shell"
)

// pluginFound is the plugin's exit code when there are zombies.
const pluginFound = 1

// stale is the act of the JobReport.
type stale struct {
	*stage
}

// plant makes the Jobs. They are there before the operator is: that is how it finds them
// in a cluster.
func (a *stale) plant(ctx context.Context) error {
	if err := a.freshNamespace(ctx, staleNamespace); err != nil {
		return err
	}
	for _, job := range scenario.StaleJobs() {
		object, err := read(job.Path(), staleNamespace)
		if err != nil {
			return err
		}
		a.screen.PrintLine("  $ kubectl -n %s apply -f examples/%s", staleNamespace, job.Path())
		if err := a.create(ctx, object); err != nil {
			return err
		}
	}
	return nil
}

// settings have the operator report on the Jobs sooner than anybody would want otherwise.
func (*stale) settings() []string {
	settings := []string{"YARDMASTER_REPORT_INTERVAL=2s"}
	for _, flag := range impatience() {
		name, value, _ := strings.Cut(flag, "=")
		settings = append(settings, "YARDMASTER_REPORT_"+strings.ToUpper(strings.ReplaceAll(name, "-", "_"))+"="+value)
	}
	return settings
}

// impatience are the thresholds that are not the defaults, as name=value.
func impatience() []string {
	thresholds, defaults := scenario.Impatient(), zombie.DefaultThresholds()
	var changed []string
	for i, setting := range thresholds.Settings() {
		if *setting.Value != *defaults.Settings()[i].Value {
			changed = append(changed, fmt.Sprintf("%s=%s", setting.Name, setting.Value))
		}
	}
	return changed
}

// play shows the report, once it says what it should.
func (a *stale) play(ctx context.Context) error {
	a.title("JobReport: which Jobs are stale")
	a.screen.PrintLine("  The operator has looked at those Jobs every two seconds, and counts as old what is some seconds old.\n")
	if err := a.follow(ctx); err != nil {
		a.kubectl(ctx, "-n", staleNamespace, "describe", "jobreport", v1alpha1.JobReportName)
		a.kubectl(ctx, "-n", staleNamespace, "get", "jobs,pods", "-o", "wide")
		return a.explainOperator(ctx, err)
	}
	a.screen.PrintLine("\n%s", a.screen.Success(fmt.Sprintf("Of %d Jobs the %d stale ones were found, each for the right reason, and none was touched.",
		len(scenario.StaleJobs()), len(scenario.StaleJobs())-1)))
	a.kubectl(ctx, "-n", staleNamespace, "get", "jobreports")
	a.kubectl(ctx, "-n", staleNamespace, "describe", "jobreport", v1alpha1.JobReportName)
	return a.showPlugin(ctx)
}

// follow shows how the findings come, until all are there.
func (a *stale) follow(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, a.limit, errors.New("time is up"))
	defer cancel()
	defer a.screen.KeepLines()
	var faults []string
	before := map[string]string{}
	err := wait.PollUntilContextCancel(ctx, often, true, func(ctx context.Context) (bool, error) {
		report := &v1alpha1.JobReport{}
		if err := a.client.Get(ctx, client.ObjectKey{Namespace: staleNamespace, Name: v1alpha1.JobReportName}, report); err != nil {
			faults = []string{err.Error()}
			return false, nil //nolint:nilerr // the first report may not be there yet
		}
		a.tell(before, &report.Status)
		faults = nil
		for _, job := range scenario.StaleJobs() {
			if fault := job.Fault(&report.Status); fault != "" {
				faults = append(faults, fault)
			}
		}
		return len(faults) == 0, nil
	})
	if err != nil {
		return fmt.Errorf("%w after %s: %s", context.Cause(ctx), a.limit, strings.Join(faults, "; "))
	}
	return nil
}

// tell shows what the report says now of each Job, or what of that is new.
func (a *stale) tell(before map[string]string, status *v1alpha1.JobReportStatus) {
	lines := []string{fmt.Sprintf("  %-16s %-12s %s", "JOB", "CATEGORY", "REASON")}
	for _, job := range scenario.StaleJobs() {
		line := a.line(&job, status)
		if !a.screen.IsTerminal() && before[job.Name] != line {
			a.screen.PrintLine("%s", line)
		}
		before[job.Name] = line
		lines = append(lines, line)
	}
	a.screen.DrawLines(lines)
}

func (a *stale) line(job *scenario.StaleJob, status *v1alpha1.JobReportStatus) string {
	category, reason := zombie.CategoryHealthy, ""
	if finding := job.Finding(status); finding != nil {
		category, reason = zombie.Category(finding.Category), finding.Reason
	}
	padded := fmt.Sprintf("%-12s", category)
	switch category {
	case zombie.CategoryZombie:
		padded = a.screen.Failure(padded)
	case zombie.CategoryHealthy:
		padded = a.screen.Success(padded)
	}
	return strings.TrimRight(fmt.Sprintf("  %-16s %s %s", job.Name, padded, reason), " ")
}

// showPlugin runs the same rules from here, without the operator.
func (a *stale) showPlugin(ctx context.Context) error {
	if err := shell.Quiet(ctx, "make", "--no-print-directory", "plugin"); err != nil {
		return err
	}
	args := []string{"report", "-n", staleNamespace}
	for _, flag := range impatience() {
		args = append(args, "--"+flag)
	}
	a.screen.PrintLine("\n  The same rules from a laptop, without the operator (exit code 1: there are zombies):\n\n  $ kubectl yardmaster %s",
		strings.Join(args, " "))
	args = slices.Concat(args, []string{"--kubeconfig", a.kubeconfig})
	if a.screen.ColorEnabled {
		args = append(args, "--color=always")
	}
	code, err := shell.Code(ctx, os.Stdout, "bin/kubectl-yardmaster", args...)
	if err != nil {
		return err
	}
	if code != pluginFound {
		return fmt.Errorf("the plugin ended with code %d, it should have been %d", code, pluginFound)
	}
	return nil
}
