package sessiongit

import (
	"os"
	"path/filepath"
	"testing"
)

func TestGitGetsCredentialsOnlyForTheHostThatItIsConnectedTo(t *testing.T) {
	directory := t.TempDir()
	if err := os.WriteFile(filepath.Join(directory, "password"), []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	environment := map[string]string{hostsVariable: "github.com,git.example.com:8443", credentialsVariable: directory}
	for question, want := range map[string]string{
		"Username for 'https://github.com': ":                      "x-access-token",
		"Password for 'https://github.com': ":                      "secret",
		"Password for 'https://user@github.com': ":                 "secret",
		"Password for 'https://github.com:443': ":                  "secret",
		"Password for 'https://user@git.example.com:8443': ":       "secret",
		"Password for 'https://git.example.com': ":                 "",
		"Password for 'http://github.com': ":                       "",
		"Password for 'https://other.example.com': ":               "",
		"Password for 'https://github.com@other.example.com': ":    "",
		"Password for 'https://github.com'@other.example.com': ":   "",
		"Password for 'https://github.com/x@other.example.com': ":  "",
		"Password for 'https://github.com': @other.example.com': ": "",
		"Password for 'https://other.example.com/@github.com/x': ": "",
		"Password for 'https://github.com":                         "",
		"":                                                         "",
	} {
		got, err := Askpass([]string{question}, func(name string) string { return environment[name] })
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v; want %q", question, got, err, want)
		}
	}
}
