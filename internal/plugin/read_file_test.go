package plugin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFilesAndStandardInputAreReadUpToALimit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "manifest.yaml")
	if err := os.WriteFile(path, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"-", path} {
		if got, err := readFile(name, strings.NewReader("12345"), 5); err != nil || string(got) != "12345" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if _, err := readFile(name, strings.NewReader("12345"), 4); err == nil || !strings.Contains(err.Error(), name+" has more than 4 bytes") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}
