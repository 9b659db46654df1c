package sessiongit

import (
	"os"
	"path/filepath"
	"testing"
)

func TestGitGetsCredentialsOnlyForTheRepositoryOfTheCommand(t *testing.T) {
	directory := t.TempDir()
	if err := os.WriteFile(filepath.Join(directory, "password"), []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
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
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v; want %q", question, got, err, want)
		}
		if got, err := Askpass([]string{question}, func(name string) string { return map[string]string{credentialsVariable: directory}[name] }); err == nil {
			t.Errorf("%s: %q for a command without credentials", question, got)
		}
	}
}
