package certs

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/internal/operator/webhook"
)

func TestADirectoryHasTheFilesWrittenLast(t *testing.T) {
	d := certificateDir(t.TempDir())
	for _, generation := range []string{"first", "second"} {
		files := map[string][]byte{webhook.CertFile: []byte(generation), webhook.KeyFile: []byte(generation + " key")}
		if err := d.writeFiles(files); err != nil {
			t.Fatal(err)
		}
		got := map[string][]byte{webhook.CertFile: readFile(t, d, webhook.CertFile), webhook.KeyFile: readFile(t, d, webhook.KeyFile)}
		if diff := cmp.Diff(files, got); diff != "" {
			t.Errorf("after the %s write (-want +got):\n%s", generation, diff)
		}
	}
	if versions := globFiles(t, d, versionPrefix+"*"); len(versions) != 1 {
		t.Errorf("old versions remain: %v", versions)
	}
}

func TestFilesOfADirectoryChangeTogether(t *testing.T) {
	d := certificateDir(t.TempDir())
	if err := d.writeFiles(map[string][]byte{webhook.CertFile: []byte("1"), webhook.KeyFile: []byte("1")}); err != nil {
		t.Fatal(err)
	}
	before, err := filepath.EvalSymlinks(d.pathOf())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{webhook.CertFile, webhook.KeyFile} {
		target, err := filepath.EvalSymlinks(d.pathOf(name))
		if err != nil {
			t.Fatal(err)
		}
		version, err := os.Readlink(d.pathOf(currentLink))
		if err != nil {
			t.Fatal(err)
		}
		if want := filepath.Join(before, version, name); target != want {
			t.Errorf("%s points to %s, want the current version %s", name, target, want)
		}
	}
}

func TestUnchangedFilesAreNotWrittenAgain(t *testing.T) {
	d := certificateDir(t.TempDir())
	files := map[string][]byte{webhook.CertFile: []byte("same")}
	if err := d.writeFiles(files); err != nil {
		t.Fatal(err)
	}
	before := statFile(t, d, webhook.CertFile)
	if err := d.writeFiles(files); err != nil {
		t.Fatal(err)
	}
	if after := statFile(t, d, webhook.CertFile); !os.SameFile(before, after) || before.ModTime() != after.ModTime() {
		t.Error("the same content was written again")
	}
}

func TestADirectoryIsConsistentAfterAnInterruptedWrite(t *testing.T) {
	d := certificateDir(t.TempDir())
	if err := os.Symlink("missing", d.pathOf(nextLink)); err != nil {
		t.Fatal(err)
	}
	if err := d.writeFiles(map[string][]byte{webhook.CertFile: []byte("new")}); err != nil {
		t.Fatal(err)
	}
	if got := string(readFile(t, d, webhook.CertFile)); got != "new" {
		t.Errorf("%s = %q, want new", webhook.CertFile, got)
	}
}

func TestThePrivateKeyIsReadableByItsOwnerOnly(t *testing.T) {
	d := certificateDir(t.TempDir())
	if err := d.writeFiles(map[string][]byte{webhook.KeyFile: []byte("secret")}); err != nil {
		t.Fatal(err)
	}
	if mode := statFile(t, d, webhook.KeyFile).Mode().Perm(); mode != 0o600 {
		t.Errorf("mode %o, want 600", mode)
	}
}

func TestASecretMustHaveEveryCertificateFile(t *testing.T) {
	served := map[string][]byte{
		webhook.CertFile: []byte("cert"), webhook.KeyFile: []byte("key"), caFile: []byte("ca"), webhook.PathFile: []byte("path"),
	}
	full := maps.Clone(served)
	full["ca.key"] = []byte("ca key")
	withoutPath := maps.Clone(full)
	delete(withoutPath, webhook.PathFile)
	for name, row := range map[string]struct {
		data map[string][]byte
		want map[string][]byte
	}{
		"a complete Secret: all files except the CA key": {full, served},
		"an empty Secret":                  {nil, nil},
		"a Secret without the secret path": {withoutPath, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(row.want, certificateFiles(&corev1.Secret{Data: row.data})); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
		})
	}
}

func readFile(t *testing.T, d certificateDir, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(d.pathOf(name))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func statFile(t *testing.T, d certificateDir, name string) os.FileInfo {
	t.Helper()
	info, err := os.Stat(d.pathOf(name))
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func globFiles(t *testing.T, d certificateDir, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(d.pathOf(pattern))
	if err != nil {
		t.Fatal(err)
	}
	return found
}
