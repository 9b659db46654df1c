package pki

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
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

// verify checks a leaf against the authority's own ca.crt.
func verify(t *testing.T, a *Authority, name string, options x509.VerifyOptions) *x509.Certificate {
	t.Helper()
	authority, err := os.ReadFile(filepath.Join(a.Dir, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	options.Roots = x509.NewCertPool()
	options.Roots.AppendCertsFromPEM(authority)
	content, err := os.ReadFile(filepath.Join(a.Dir, name+".crt"))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(content)
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := leaf.Verify(options); err != nil {
		t.Error(err)
	}
	return leaf
}

func TestServerCertificateIsValidForEachOfItsHosts(t *testing.T) {
	authority := newAuthority(t)
	if err := authority.Issue("server", Leaf{CommonName: "s", Hosts: []string{"localhost", "127.0.0.1"}}); err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"localhost", "127.0.0.1"} {
		verify(t, authority, "server", x509.VerifyOptions{DNSName: host, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	}
}

func TestAClientCertificateNamesItsUserAndGroups(t *testing.T) {
	authority := newAuthority(t)
	if err := authority.Issue("admin", Leaf{CommonName: "admin", Organizations: []string{"system:masters"}}); err != nil {
		t.Fatal(err)
	}
	leaf := verify(t, authority, "admin", x509.VerifyOptions{KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if leaf.Subject.CommonName != "admin" || strings.Join(leaf.Subject.Organization, ",") != "system:masters" {
		t.Errorf("subject %v", leaf.Subject)
	}
	if _, err := tls.LoadX509KeyPair(filepath.Join(authority.Dir, "admin.crt"), filepath.Join(authority.Dir, "admin.key")); err != nil {
		t.Error(err)
	}
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

func TestAKubeconfigNamesItsServer(t *testing.T) {
	authority := newAuthority(t)
	if err := authority.IssueKubeconfig("admin", Leaf{CommonName: "admin"}, "https://127.0.0.1:6443"); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(authority.Dir, "admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(content), "server: https://127.0.0.1:6443\n") {
		t.Errorf("no server in:\n%s", content)
	}
}
