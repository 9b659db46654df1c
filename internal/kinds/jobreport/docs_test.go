package jobreport

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/test/require"
)

const (
	documentation = "../../../docs/jobreport.md"
	alerts        = "../../../config/components/jobreport-alerts/rules.yaml"
	// runbook is where alerts refer to.
	runbook = "https://github.com/yardmaster/yardmaster/blob/main/docs/jobreport.md"
)

var updateDocs = flag.Bool("update-docs", false, "write the rules into docs/jobreport.md and the alerts")

// The documentation and the alerts are generated from the table of rules. To update them,
// run go test ./internal/kinds/jobreport -run Generated -update-docs.
func TestGeneratedDocumentationAndAlertsAreUpToDate(t *testing.T) {
	for name, row := range map[string]struct{ path, begin, end, want string }{
		"table of rules":     {documentation, "<!-- rules: generated -->\n", "<!-- rules: end -->", rulesTable()},
		"section per reason": {documentation, "<!-- reasons: generated -->\n", "<!-- reasons: end -->", reasonSections()},
		"alert per reason":   {alerts, "    # reasons: generated\n", "    # reasons: end", reasonAlerts()},
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := os.ReadFile(row.path)
			require.NoError(t, err)
			before, rest, found := strings.Cut(string(raw), row.begin)
			_, after, closed := strings.Cut(rest, row.end)
			require.True(t, found && closed, "%s lacks the markers %q and %q", row.path, row.begin, row.end)
			want := before + row.begin + row.want + row.end + after
			switch {
			case want == string(raw):
			case *updateDocs:
				require.NoError(t, os.WriteFile(row.path, []byte(want), 0o600))
			default:
				t.Errorf("%s is outdated: run this test with -update-docs", row.path)
			}
		})
	}
}

func reasonSections() string {
	var sections strings.Builder
	for i := range rules {
		for _, text := range rules[i].reasons {
			fmt.Fprintf(&sections, "\n### %s\n\n%s\n\n```sh\n%s\n```\n", text.reason, text.next, text.command)
		}
	}
	return sections.String() + "\n"
}

// reasonAlerts returns an alert for each reason that needs somebody's attention: zombies, and new
// failures. Jobs that only take up space cause no alert.
func reasonAlerts() string {
	var all strings.Builder
	for i := range rules {
		for _, text := range rules[i].reasons {
			category, severity := CategoryZombie, "warning"
			switch {
			case text.reason == ReasonFailedLongAgo:
				continue
			case text.reason.IsFailure() || text.reason == ReasonUnknown:
				category, severity = CategorySuspicious, "info"
			case rules[i].defaults.Zombie == 0:
				continue
			}
			fmt.Fprintf(&all, alertTemplate, text.reason, category, text.reason, severity,
				strings.ReplaceAll(rules[i].description, "`", ""), strings.ReplaceAll(text.next, "'", "''"), runbook, strings.ToLower(string(text.reason)))
		}
	}
	return all.String()
}

const alertTemplate = `    - alert: YardmasterJob%s
      expr: max by (namespace) (yardmaster_jobreport_findings{category="%s", reason="%s"}) > 0
      for: 1h
      labels:
        severity: %s
      annotations:
        summary: 'Namespace {{ $labels.namespace }}: {{ $value }} Jobs, each of which %s.'
        description: 'List them with kubectl yardmaster report -n {{ $labels.namespace }}. %s'
        runbook_url: %s#%s
`

func TestEachReasonHasANextStepWithACommand(t *testing.T) {
	for _, reason := range AllReasons() {
		sentence, command := NextStep(reason, "team-a", "train")
		require.True(t, sentence != "" && len(sentence) <= MaxMessageBytes && strings.HasSuffix(sentence, "."), "%s: %q", reason, sentence)
		require.True(t, strings.HasPrefix(command, "kubectl ") && !strings.Contains(command, "NAME"), "%s: command %q", reason, command)
	}
	sentence, command := NextStep("Other", "a", "b")
	require.True(t, sentence == "" && command == "", "an unknown reason has the next step %q: %q", sentence, command)
}

func rulesTable() string {
	var table strings.Builder
	table.WriteString("| Reason | A Job that | Age counts from | Suspicious after | Zombie after | Flags `--report-…` |\n|---|---|---|---|---|---|\n")
	for i := range rules {
		rule := &rules[i]
		suspicious, zombie, flags := "immediately", "never", ""
		if rule.flag != "" {
			suspicious, zombie = formatAge(rule.defaults.Suspicious), formatAge(rule.defaults.Zombie)
			flags = "`" + rule.flag + "`"
		}
		var reasons []string
		for _, text := range rule.reasons {
			reasons = append(reasons, fmt.Sprintf("[%#q](#%s)", text.reason, strings.ToLower(string(text.reason))))
		}
		fmt.Fprintf(&table, "| %s | %s | %s | %s | %s | %s |\n", strings.Join(reasons, ", "), rule.description, rule.ageFrom, suspicious, zombie, flags)
	}
	return table.String()
}

func formatAge(d time.Duration) string {
	switch {
	case d == 0:
		return "never"
	case d > oneDay:
		return fmt.Sprintf("%d d", d/oneDay)
	case d >= time.Hour:
		return fmt.Sprintf("%d h", d/time.Hour)
	default:
		return fmt.Sprintf("%d min", d/time.Minute)
	}
}

var (
	sampleTitle = regexp.MustCompile(`(?m)^# (\w+): `)
	sampleLine  = regexp.MustCompile(`(?m)^# At (\S+): (\w+)$`)
)

// sample is a Job in the documentation, and the categories that its file states.
type sample struct {
	reason     Reason
	job        *batchv1.Job
	categories [][2]string // by time
}

func readSamples(t testing.TB) []sample {
	paths, err := filepath.Glob("../../../docs/samples/jobreport/*.yaml")
	require.NoError(t, err)
	var samples []sample
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		require.NoError(t, err)
		s := sample{job: &batchv1.Job{}}
		require.NoError(t, yaml.UnmarshalStrict(raw, s.job))
		for _, match := range sampleLine.FindAllSubmatch(raw, -1) {
			s.categories = append(s.categories, [2]string{string(match[1]), string(match[2])})
		}
		title := sampleTitle.FindSubmatch(raw)
		require.True(t, title != nil && len(s.categories) != 0, "%s does not state its reason and times", path)
		s.reason = Reason(title[1])
		samples = append(samples, s)
	}
	return samples
}

// The Jobs in the documentation have the classification that it states: each side of each threshold.
func TestSamples(t *testing.T) {
	var shown []Reason
	for _, sample := range readSamples(t) {
		shown = append(shown, sample.reason)
		t.Run(string(sample.reason), func(t *testing.T) {
			for _, stated := range sample.categories {
				at, err := time.Parse(time.RFC3339, stated[0])
				require.NoError(t, err)
				got := Classify(sample.job, at, DefaultThresholds())
				want := Finding{Category: Category(stated[1])}
				if want.Category != CategoryHealthy {
					want.Reason = sample.reason
				}
				require.True(t, got.Category == want.Category && got.Reason == want.Reason, "at %s: got %+v, want %+v", at, got, want)
			}
		})
	}
	require.Equal(t, AllReasons(), shown)
}
