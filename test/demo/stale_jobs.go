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

// pluginZombieExitCode is the plugin's exit code when there are zombies.
const pluginZombieExitCode = 1

// staleJobScenario runs the examples of a JobReport.
type staleJobScenario struct {
	*demoEnvironment
}

// createStaleJobs creates the Jobs before the operator is deployed, as it finds Jobs in a real
// cluster.
func (a *staleJobScenario) createStaleJobs(ctx context.Context) error {
	if err := a.recreateNamespace(ctx, staleNamespace); err != nil {
		return err
	}
	for _, job := range scenario.StaleJobs() {
		object, err := readManifest(job.ManifestPath(), staleNamespace)
		if err != nil {
			return err
		}
		a.screen.PrintLine("  $ kubectl -n %s apply -f examples/%s", staleNamespace, job.ManifestPath())
		if err := a.createWithRetry(ctx, object); err != nil {
			return err
		}
	}
	return nil
}

// operatorSettings make the operator scan often and use short thresholds.
func (*staleJobScenario) operatorSettings() []string {
	settings := []string{"YARDMASTER_REPORT_INTERVAL=2s"}
	for _, flag := range changedThresholds() {
		name, value, _ := strings.Cut(flag, "=")
		settings = append(settings, "YARDMASTER_REPORT_"+strings.ToUpper(strings.ReplaceAll(name, "-", "_"))+"="+value)
	}
	return settings
}

// changedThresholds returns the thresholds that differ from the defaults, as name=value.
func changedThresholds() []string {
	thresholds, defaults := scenario.DemoThresholds(), zombie.DefaultThresholds()
	var changed []string
	for i, setting := range thresholds.Settings() {
		if *setting.Value != *defaults.Settings()[i].Value {
			changed = append(changed, fmt.Sprintf("%s=%s", setting.Name, setting.Value))
		}
	}
	return changed
}

// runScenario waits for the expected report and prints it.
func (a *staleJobScenario) runScenario(ctx context.Context) error {
	a.printTitle("JobReport: finding stale Jobs")
	a.screen.PrintLine("  In this demo, the operator scans every two seconds, and its thresholds are a few seconds.\n")
	if err := a.followFindings(ctx); err != nil {
		a.runKubectl(ctx, "-n", staleNamespace, "describe", "jobreport", v1alpha1.JobReportName)
		a.runKubectl(ctx, "-n", staleNamespace, "get", "jobs,pods", "-o", "wide")
		return a.showOperatorAfter(ctx, err)
	}
	a.screen.PrintLine("\n%s", a.screen.Success(fmt.Sprintf("Of %d Jobs, the %d stale ones were found for the right reasons. No Job was changed.",
		len(scenario.StaleJobs()), len(scenario.StaleJobs())-1)))
	a.runKubectl(ctx, "-n", staleNamespace, "get", "jobreports")
	a.runKubectl(ctx, "-n", staleNamespace, "describe", "jobreport", v1alpha1.JobReportName)
	return a.runPluginReport(ctx)
}

// followFindings prints the findings until all are as expected.
func (a *staleJobScenario) followFindings(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, a.timeout, errors.New("timeout"))
	defer cancel()
	defer a.screen.KeepLines()
	var mismatches []string
	before := map[string]string{}
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		report := &v1alpha1.JobReport{}
		if err := a.client.Get(ctx, client.ObjectKey{Namespace: staleNamespace, Name: v1alpha1.JobReportName}, report); err != nil {
			mismatches = []string{err.Error()}
			return false, nil //nolint:nilerr // the first report may not exist yet
		}
		a.printFindings(before, &report.Status)
		mismatches = nil
		for _, job := range scenario.StaleJobs() {
			if mismatch := job.Mismatch(&report.Status); mismatch != "" {
				mismatches = append(mismatches, mismatch)
			}
		}
		return len(mismatches) == 0, nil
	})
	if err != nil {
		return fmt.Errorf("%w after %s: %s", context.Cause(ctx), a.timeout, strings.Join(mismatches, "; "))
	}
	return nil
}

// printFindings prints changed findings, or redraws all on a terminal.
func (a *staleJobScenario) printFindings(before map[string]string, status *v1alpha1.JobReportStatus) {
	lines := []string{fmt.Sprintf("  %-16s %-12s %s", "JOB", "CATEGORY", "REASON")}
	for _, job := range scenario.StaleJobs() {
		line := a.formatFinding(&job, status)
		if !a.screen.IsTerminal() && before[job.Name] != line {
			a.screen.PrintLine("%s", line)
		}
		before[job.Name] = line
		lines = append(lines, line)
	}
	a.screen.DrawLines(lines)
}

func (a *staleJobScenario) formatFinding(job *scenario.StaleJob, status *v1alpha1.JobReportStatus) string {
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

// runPluginReport classifies the same Jobs with the plugin, without the operator.
func (a *staleJobScenario) runPluginReport(ctx context.Context) error {
	if err := shell.RunQuietly(ctx, "make", "--no-print-directory", "plugin"); err != nil {
		return err
	}
	args := []string{"report", "-n", staleNamespace}
	for _, flag := range changedThresholds() {
		args = append(args, "--"+flag)
	}
	a.screen.PrintLine("\n  The same report from the kubectl plugin, without the operator (exit code 1 because of zombies):\n\n  $ kubectl yardmaster %s",
		strings.Join(args, " "))
	args = slices.Concat(args, []string{"--kubeconfig", a.kubeconfig})
	if a.screen.ColorEnabled {
		args = append(args, "--color=always")
	}
	code, err := shell.ExitCode(ctx, os.Stdout, "bin/kubectl-yardmaster", args...)
	if err != nil {
		return err
	}
	if code != pluginZombieExitCode {
		return fmt.Errorf("the plugin exited with code %d, expected %d", code, pluginZombieExitCode)
	}
	return nil
}
