package pki

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/yardmaster/yardmaster/localcluster/internal/require"
)

func TestOnlyTheOwnerCanReadKeysAndKubeconfigs(t *testing.T) {
	authority, err := NewAuthority(filepath.Join(t.TempDir(), "pki"))
	require.NoError(t, err)
	require.NoError(t, authority.IssueKubeconfig("admin", Leaf{CommonName: "admin"}, "https://127.0.0.1:6443"))
	for _, name := range []string{"ca.key", "admin.key", "admin.kubeconfig"} {
		info, err := os.Stat(filepath.Join(authority.Dir, name))
		require.NoError(t, err)
		require.True(t, info.Mode().Perm() == 0o600, "%s has mode %o", name, info.Mode().Perm())
	}
}
