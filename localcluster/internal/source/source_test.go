package source

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/yardmaster/yardmaster/localcluster/internal/require"
)

func checkout(t *testing.T) string {
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "localcluster", "internal"), 0o755))
	for dir, name := range map[string]string{".": "example.com/product", "localcluster": module} {
		require.NoError(t, os.WriteFile(filepath.Join(root, dir, "go.mod"), []byte("module "+name+"\n"), 0o644))
	}
	return root
}

func TestSourcesAreFoundFromAnyDirectoryOfACheckout(t *testing.T) {
	root := checkout(t)
	for _, start := range []string{"", "bin", "localcluster", "localcluster/internal"} {
		dir, found := search(filepath.Join(root, start))
		want := filepath.Join(root, "localcluster")
		require.True(t, found && dir == want, "from %q: got %q, want %q", start, dir, want)
	}
}

func TestTheVariableMustNameTheSources(t *testing.T) {
	t.Setenv(Variable, t.TempDir())
	dir, err := Locate()
	require.True(t, err != nil, "%s is accepted", dir)
}
