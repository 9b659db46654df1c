package zombie

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

const documentation = "../../docs/jobreport.md"

var updateDocs = flag.Bool("update-docs", false, "write the rules into docs/jobreport.md")

// The table of rules in the documentation is generated. To update it,
// run go test ./internal/zombie -run Documentation -update-docs.
func TestDocumentationHasTheTableOfRules(t *testing.T) {
	raw, err := os.ReadFile(documentation)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- rules: generated -->\n", "<!-- rules: end -->"
	before, rest, found := strings.Cut(string(raw), begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s lacks the markers %q and %q", documentation, begin, end)
	}
	want := before + begin + rulesTable() + end + after
	switch {
	case want == string(raw):
	case *updateDocs:
		if err := os.WriteFile(documentation, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("the table of rules in %s is outdated: run this test with -update-docs", documentation)
	}
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
		for _, reason := range rule.reasons {
			reasons = append(reasons, "`"+string(reason)+"`")
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
