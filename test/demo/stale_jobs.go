package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/jobreport"
	"github.com/yardmaster/yardmaster/test/demo/page"
	"github.com/yardmaster/yardmaster/test/demo/scenario"
	"github.com/yardmaster/yardmaster/test/demo/shell"
)

// pluginZombieExitCode is the plugin's exit code when there are zombies.
const pluginZombieExitCode = 1

type staleJobScenario struct {
	*demoEnvironment

	section      *page.Section
	pluginReport string
}

func (a *staleJobScenario) begin() *page.Section {
	a.section = a.page.NewSection("JobReport", "stale Jobs, with thresholds of seconds: examples/jobreport in namespace "+staleNamespace)
	return a.section
}

// createStaleJobs creates the Jobs before the operator is deployed, as it finds Jobs in a real cluster.
func (a *staleJobScenario) createStaleJobs(ctx context.Context) error {
	if err := a.recreateNamespace(ctx, staleNamespace); err != nil {
		return err
	}
	for _, job := range scenario.StaleJobs() {
		object, err := readManifest(job.ManifestPath(), staleNamespace)
		if err != nil {
			return err
		}
		if err := a.create(ctx, object); err != nil {
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

func changedThresholds() []string {
	thresholds, defaults := scenario.DemoThresholds(), jobreport.DefaultThresholds()
	var changed []string
	for i, setting := range thresholds.Settings() {
		if *setting.Value != *defaults.Settings()[i].Value {
			changed = append(changed, fmt.Sprintf("%s=%s", setting.Name, setting.Value))
		}
	}
	return changed
}

// run waits for the expected report, and for the same from the plugin without the operator.
func (a *staleJobScenario) run(ctx context.Context) (result string, err error) {
	if err := a.followFindings(ctx); err != nil {
		return "", err
	}
	output, err := a.runPluginReport(ctx)
	if err != nil {
		return "", err
	}
	a.pluginReport = output
	return fmt.Sprintf("JobReport: of %d Jobs, the %d stale ones were found for the right reasons, by the operator and by the plugin. No Job was changed.",
		len(scenario.StaleJobs()), len(scenario.StaleJobs())-1), nil
}

func (a *staleJobScenario) showDetails(ctx context.Context) {
	a.page.PrintTitle("JobReport in kubectl")
	a.runKubectl(ctx, "-n", staleNamespace, "get", "jobreports")
	a.runKubectl(ctx, "-n", staleNamespace, "describe", "jobreport", v1alpha1.JobReportName)
	a.page.PrintLine("\n  The same report from the kubectl plugin, without the operator (exit code 1 because of zombies):\n\n  $ kubectl yardmaster %s\n%s",
		strings.Join(pluginReportArguments(), " "), a.pluginReport)
}

func (a *staleJobScenario) showState(ctx context.Context, _ error) {
	a.page.PrintTitle("JobReport")
	a.runKubectl(ctx, "-n", staleNamespace, "describe", "jobreport", v1alpha1.JobReportName)
	a.runKubectl(ctx, "-n", staleNamespace, "get", "jobs,pods", "-o", "wide")
}

func (a *staleJobScenario) followFindings(ctx context.Context) error {
	return a.waitUntil(ctx, "the expected report", func(ctx context.Context) (bool, error) {
		report := &v1alpha1.JobReport{}
		if err := a.client.Get(ctx, client.ObjectKey{Namespace: staleNamespace, Name: v1alpha1.JobReportName}, report); err != nil {
			return false, err
		}
		lines := []string{fmt.Sprintf("%-16s %-12s %s", "JOB", "CATEGORY", "REASON")}
		var mismatches []error
		for _, job := range scenario.StaleJobs() {
			lines = append(lines, a.formatFinding(&job, &report.Status))
			if mismatch := job.Mismatch(&report.Status); mismatch != "" {
				mismatches = append(mismatches, errors.New(mismatch))
			}
		}
		a.section.Draw(lines)
		return true, errors.Join(mismatches...)
	})
}

func (a *staleJobScenario) formatFinding(job *scenario.StaleJob, status *v1alpha1.JobReportStatus) string {
	category, reason := jobreport.CategoryHealthy, ""
	if finding := job.Finding(status); finding != nil {
		category, reason = jobreport.Category(finding.Category), finding.Reason
	}
	padded := fmt.Sprintf("%-12s", category)
	switch category {
	case jobreport.CategoryZombie:
		padded = a.page.Failure(padded)
	case jobreport.CategoryHealthy:
		padded = a.page.Success(padded)
	}
	return strings.TrimRight(fmt.Sprintf("%-16s %s %s", job.Name, padded, reason), " ")
}

// pluginReportArguments are those of the plugin for the same thresholds as the operator's.
func pluginReportArguments() []string {
	args := []string{"report", "-n", staleNamespace}
	for _, flag := range changedThresholds() {
		args = append(args, "--"+flag)
	}
	return args
}

// runPluginReport classifies the same Jobs with the plugin, without the operator.
func (a *staleJobScenario) runPluginReport(ctx context.Context) (output string, err error) {
	args := slices.Concat(pluginReportArguments(), []string{"--kubeconfig", a.kubeconfig})
	if a.page.ColorEnabled {
		args = append(args, "--color=always")
	}
	var out strings.Builder
	code, err := shell.ExitCode(ctx, &out, "bin/kubectl-yardmaster", args...)
	if err != nil {
		return "", err
	}
	if code != pluginZombieExitCode {
		return "", fmt.Errorf("the plugin exited with code %d, expected %d:\n%s", code, pluginZombieExitCode, out.String())
	}
	return out.String(), nil
}
