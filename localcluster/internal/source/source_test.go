package source

import (
	"os"
	"path/filepath"
	"testing"
)

func checkout(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "localcluster", "internal"), 0o755); err != nil {
		t.Fatal(err)
	}
	for dir, name := range map[string]string{".": "example.com/product", "localcluster": module} {
		if err := os.WriteFile(filepath.Join(root, dir, "go.mod"), []byte("module "+name+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestSourcesAreFoundFromAnyDirectoryOfACheckout(t *testing.T) {
	root := checkout(t)
	for _, start := range []string{"", "bin", "localcluster", "localcluster/internal"} {
		dir, found := search(filepath.Join(root, start))
		if want := filepath.Join(root, "localcluster"); !found || dir != want {
			t.Errorf("from %q: got %q, want %q", start, dir, want)
		}
	}
}

func TestTheVariableMustNameTheSources(t *testing.T) {
	t.Setenv(Variable, t.TempDir())
	if dir, err := Locate(); err == nil {
		t.Errorf("%s is accepted", dir)
	}
}
