package controller

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testenv"
)

const alertsDirectory = "../../../../config/components/jobreport-alerts"

// alertRule is the part of an alert that the tests read.
type alertRule struct {
	Alert       string            `json:"alert"`
	Annotations map[string]string `json:"annotations"`
}

// readAlertGroups returns the groups of the PrometheusRule, which is a rule file of Prometheus.
func readAlertGroups(t *testing.T) (raw []byte, rules []alertRule) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(alertsDirectory, "rules.yaml"))
	require.NoError(t, err)
	file := struct {
		Spec json.RawMessage `json:"spec"`
	}{}
	require.NoError(t, yaml.Unmarshal(content, &file))
	parsed := struct {
		Groups []struct {
			Rules []alertRule `json:"rules"`
		} `json:"groups"`
	}{}
	require.NoError(t, json.Unmarshal(file.Spec, &parsed))
	for _, group := range parsed.Groups {
		rules = append(rules, group.Rules...)
	}
	return file.Spec, rules
}

func TestAlertsFireAsPromtoolEvaluatesThem(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Fatalf("%v: run hack/prerequisites promtool=prometheus", err)
	}
	groups, _ := readAlertGroups(t)
	tests, err := os.ReadFile(filepath.Join(alertsDirectory, "rules_test.yaml"))
	require.NoError(t, err)
	directory := t.TempDir()
	for name, content := range map[string][]byte{"rules.yaml": groups, "rules_test.yaml": tests} {
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
	for line := range strings.Lines(string(documentation)) {
		if title, isHeading := strings.CutPrefix(strings.TrimLeft(strings.TrimSpace(line), "#"), " "); isHeading && strings.HasPrefix(line, "##") {
			headings[strings.ReplaceAll(strings.ToLower(title), " ", "-")] = true
		}
	}
	_, rules := readAlertGroups(t)
	for _, rule := range rules {
		page, section, _ := strings.Cut(rule.Annotations["runbook_url"], "#")
		if !strings.HasSuffix(page, "/docs/jobreport.md") || !headings[section] {
			t.Errorf("%s: runbook_url %q refers to no section", rule.Alert, rule.Annotations["runbook_url"])
		}
	}
}

func TestCountersStartAtZero(t *testing.T) {
	initializeMetrics(Options{Namespaces: []string{"fresh"}, OpenReports: true})
	names := testenv.MetricLabels(t, "yardmaster_jobreport_scan_errors_total")
	for _, reason := range scanFailureReasons {
		if !names["fresh,"+reason] {
			t.Errorf("the counter of %s does not exist before the first error", reason)
		}
	}
	for name, label := range map[string]string{
		"yardmaster_jobreport_writes_total": "failed", "yardmaster_jobreport_openreports_writes_total": "failed", "yardmaster_jobreport_openreports_errors_total": "Forbidden",
	} {
		if !testenv.MetricLabels(t, name)[label] {
			t.Errorf("%s has no value for %s", name, label)
		}
	}
}
