package pki

import (
	"os"
	"path/filepath"
	"testing"
)

func newAuthority(t *testing.T) *Authority {
	t.Helper()
	authority, err := NewAuthority(filepath.Join(t.TempDir(), "pki"))
	if err != nil {
		t.Fatal(err)
	}
	return authority
}

func TestOnlyTheOwnerCanReadKeysAndKubeconfigs(t *testing.T) {
	authority := newAuthority(t)
	if err := authority.IssueKubeconfig("admin", Leaf{CommonName: "admin"}, "https://127.0.0.1:6443"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ca.key", "admin.key", "admin.kubeconfig"} {
		info, err := os.Stat(filepath.Join(authority.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %o", name, info.Mode().Perm())
		}
	}
}
