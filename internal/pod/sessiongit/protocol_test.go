package sessiongit

import (
	"strings"
	"testing"
)

func TestSuffixesOfBranchesAreAcceptedByTheServer(t *testing.T) {
	for branch, want := range map[string]string{
		"feature":                "feature",
		"feature/one":            "feature-one",
		"fix_#12@{x}..lock":      "fix-12-x-lock",
		"-ünïcode-":              "n-code",
		strings.Repeat("a/", 80): strings.TrimSuffix(strings.Repeat("a-", 50), "-"),
	} {
		got := SuffixOf(branch)
		if got != want || !branchSuffix.MatchString(got) || len(got) > maxBranchSuffix {
			t.Errorf("SuffixOf(%q) = %q, want %q", branch, got, want)
		}
	}
	for _, suffix := range []string{"", "-", "a-", "-a", "a/b", "..", "a.lock", "a b", "a\n", "@{u}"} {
		if branchSuffix.MatchString(suffix) {
			t.Errorf("the suffix %q is accepted", suffix)
		}
	}
}
