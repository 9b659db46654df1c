package certs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestDirHoldsWhatWasWrittenLast(t *testing.T) {
	d := dir(t.TempDir())
	for _, generation := range []string{"first", "second"} {
		files := map[string][]byte{certFile: []byte(generation), keyFile: []byte(generation + " key")}
		if err := d.write(files); err != nil {
			t.Fatal(err)
		}
		got := map[string][]byte{certFile: read(t, d, certFile), keyFile: read(t, d, keyFile)}
		if diff := cmp.Diff(files, got); diff != "" {
			t.Errorf("after the %s write (-want +got):\n%s", generation, diff)
		}
	}
	if versions := glob(t, d, versionPrefix+"*"); len(versions) != 1 {
		t.Errorf("old keys are left behind: %v", versions)
	}
}

func TestDirChangesItsFilesTogether(t *testing.T) {
	d := dir(t.TempDir())
	if err := d.write(map[string][]byte{certFile: []byte("1"), keyFile: []byte("1")}); err != nil {
		t.Fatal(err)
	}
	before, err := filepath.EvalSymlinks(d.path())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{certFile, keyFile} {
		target, err := filepath.EvalSymlinks(d.path(name))
		if err != nil {
			t.Fatal(err)
		}
		version, err := os.Readlink(d.path(current))
		if err != nil {
			t.Fatal(err)
		}
		if want := filepath.Join(before, version, name); target != want {
			t.Errorf("%s is %s, want it in the current version, %s", name, target, want)
		}
	}
}

func TestDirWritesNothingTwice(t *testing.T) {
	d := dir(t.TempDir())
	files := map[string][]byte{certFile: []byte("same")}
	if err := d.write(files); err != nil {
		t.Fatal(err)
	}
	before := stat(t, d, certFile)
	if err := d.write(files); err != nil {
		t.Fatal(err)
	}
	if after := stat(t, d, certFile); !os.SameFile(before, after) || before.ModTime() != after.ModTime() {
		t.Error("the same content was written again")
	}
}

func TestDirSurvivesAWriterKilledHalfway(t *testing.T) {
	d := dir(t.TempDir())
	if err := os.Symlink("gone", d.path(next)); err != nil {
		t.Fatal(err)
	}
	if err := d.write(map[string][]byte{certFile: []byte("new")}); err != nil {
		t.Fatal(err)
	}
	if got := string(read(t, d, certFile)); got != "new" {
		t.Errorf("%s = %q, want new", certFile, got)
	}
}

func TestPrivateKeyIsForTheOwnerOnly(t *testing.T) {
	d := dir(t.TempDir())
	if err := d.write(map[string][]byte{keyFile: []byte("secret")}); err != nil {
		t.Fatal(err)
	}
	if mode := stat(t, d, keyFile).Mode().Perm(); mode != 0o600 {
		t.Errorf("mode %o, want 600", mode)
	}
}

func TestFilesOfASecret(t *testing.T) {
	full := map[string][]byte{
		certFile: []byte("cert"), keyFile: []byte("key"), caFile: []byte("ca"), "ca.key": []byte("ca key"),
	}
	served := map[string][]byte{certFile: []byte("cert"), keyFile: []byte("key"), caFile: []byte("ca")}
	for name, row := range map[string]struct {
		data map[string][]byte
		want map[string][]byte
	}{
		"all but the CA's key, when complete":   {full, served},
		"none, before the rotator filled it":    {nil, nil},
		"none, when the server's key is absent": {map[string][]byte{certFile: []byte("c"), caFile: []byte("a")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(row.want, filesOf(&corev1.Secret{Data: row.data})); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
		})
	}
}

func read(t *testing.T, d dir, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(d.path(name))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func stat(t *testing.T, d dir, name string) os.FileInfo {
	t.Helper()
	info, err := os.Stat(d.path(name))
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func glob(t *testing.T, d dir, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(d.path(pattern))
	if err != nil {
		t.Fatal(err)
	}
	return found
}
