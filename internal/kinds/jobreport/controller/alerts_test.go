package controller

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testenv"
)

const alertsDirectory = "../../../../config/components/jobreport-alerts"

func TestAlertsFireAsPromtoolEvaluatesThem(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	require.True(t, err == nil, "%v: run hack/prerequisites promtool=prometheus", err)
	content, err := os.ReadFile(filepath.Join(alertsDirectory, "rules.yaml"))
	require.NoError(t, err)
	file := struct {
		Spec json.RawMessage `json:"spec"` // of a PrometheusRule, which is a rule file of Prometheus
	}{}
	require.NoError(t, yaml.Unmarshal(content, &file))
	tests, err := os.ReadFile(filepath.Join(alertsDirectory, "rules_test.yaml"))
	require.NoError(t, err)
	directory := t.TempDir()
	for name, content := range map[string][]byte{"rules.yaml": file.Spec, "rules_test.yaml": tests} {
		require.NoError(t, os.WriteFile(filepath.Join(directory, name), content, 0o600))
	}
	for _, arguments := range [][]string{{"check", "rules", "rules.yaml"}, {"test", "rules", "rules_test.yaml"}} {
		command := exec.CommandContext(t.Context(), promtool, arguments...)
		command.Dir = directory
		if output, err := command.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(arguments, " "), err, output)
		}
	}
}

func TestEachAlertHasARunbookSection(t *testing.T) {
	documentation, err := os.ReadFile("../../../../docs/jobreport.md")
	require.NoError(t, err)
	headings := map[string]bool{}
	for _, heading := range regexp.MustCompile(`(?m)^##+ (.*)$`).FindAllStringSubmatch(string(documentation), -1) {
		headings[strings.ReplaceAll(strings.ToLower(heading[1]), " ", "-")] = true
	}
	rules, err := os.ReadFile(filepath.Join(alertsDirectory, "rules.yaml"))
	require.NoError(t, err)
	for _, rule := range strings.Split(string(rules), "- alert: ")[1:] {
		_, section, found := strings.Cut(rule, "/docs/jobreport.md#")
		require.True(t, found && headings[strings.Fields(section)[0]], "the runbook is no section: %s", rule)
	}
}

func TestCountersStartAtZero(t *testing.T) {
	initializeMetrics(Options{Namespaces: []string{"fresh"}, OpenReports: true})
	names := testenv.MetricLabels(t, "yardmaster_jobreport_scan_errors_total")
	for _, reason := range scanFailureReasons {
		require.True(t, names["fresh,"+reason], "the counter of %s does not exist before the first error", reason)
	}
	for name, label := range map[string]string{
		"yardmaster_jobreport_writes_total": "failed", "yardmaster_jobreport_openreports_writes_total": "failed", "yardmaster_jobreport_openreports_errors_total": "Forbidden",
	} {
		require.True(t, testenv.MetricLabels(t, name)[label], "%s has no value for %s", name, label)
	}
}
