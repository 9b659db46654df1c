package sessiongit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/yardmaster/yardmaster/test/require"
)

func TestGitGetsCredentialsOnlyForTheRepositoryOfTheCommand(t *testing.T) {
	directory := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(directory, "password"), []byte("secret\n"), 0o600))
	environment := map[string]string{grantVariable: "https://git.example:8443/team/shop.git", credentialsVariable: directory}
	for question, want := range map[string]string{
		"Username for 'https://git.example:8443/team/shop.git': ":                      "x-access-token",
		"Password for 'https://git.example:8443/team/shop.git': ":                      "secret",
		"Password for 'https://user@git.example:8443/team/shop.git': ":                 "secret",
		"Password for 'https://git.example:8443/team/other.git': ":                     "",
		"Password for 'https://git.example:8443/team/shop': ":                          "",
		"Password for 'https://git.example:8443': ":                                    "",
		"Password for 'https://git.example/team/shop.git': ":                           "",
		"Password for 'http://git.example:8443/team/shop.git': ":                       "",
		"Password for 'https://git.example:8443/team/shop.git@other.example': ":        "",
		"Password for 'https://git.example:8443/team/shop.git'@other.example': ":       "",
		"Password for 'https://git.example:8443/team/shop.git': @other.example': ":     "",
		"Password for 'https://other.example/@git.example:8443/team/shop.git/x.git': ": "",
		"Password for 'https://git.example:8443/team/shop.git":                         "",
		"Password for '': ": "",
		"":                  "",
	} {
		got, err := Askpass([]string{question}, func(name string) string { return environment[name] })
		require.True(t, got == want && (err == nil) == (want != ""), "%s: %q, %v; want %q", question, got, err, want)
		got, err = Askpass([]string{question}, func(name string) string { return map[string]string{credentialsVariable: directory}[name] })
		require.True(t, err != nil, "%s: %q for a command without credentials", question, got)
	}
}

func TestSuffixesOfBranchesAreAcceptedByTheServer(t *testing.T) {
	for branch, want := range map[string]string{
		"feature":                "feature",
		"feature/one":            "feature-one",
		"fix_#12@{x}..lock":      "fix-12-x-lock",
		"-ünïcode-":              "n-code",
		strings.Repeat("a/", 80): strings.TrimSuffix(strings.Repeat("a-", 50), "-"),
	} {
		got := SuffixOf(branch)
		require.True(t, got == want && branchSuffix.MatchString(got) && len(got) <= maxBranchSuffix, "SuffixOf(%q) = %q, want %q", branch, got, want)
	}
	for _, suffix := range []string{"", "-", "a-", "-a", "a/b", "..", "a.lock", "a b", "a\n", "@{u}"} {
		require.True(t, !branchSuffix.MatchString(suffix), "the suffix %q is accepted", suffix)
	}
}
