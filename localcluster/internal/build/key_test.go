package build

import (
	"os"
	"path/filepath"
	"testing"
)

func module(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "go.mod", "module example.com/part")
	write(t, dir, "sub/main.go", "package main")
	return dir
}

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestPartIsRebuiltWhenAnInputChanges(t *testing.T) {
	part := Part{Name: "part", Packages: []string{"."}}
	for change, apply := range map[string]func(dir string, part *Part, version *string){
		"a source file":    func(dir string, _ *Part, _ *string) { write(t, dir, "sub/main.go", "package other") },
		"a new file":       func(dir string, _ *Part, _ *string) { write(t, dir, "new.go", "package main") },
		"a pinned version": func(dir string, _ *Part, _ *string) { write(t, dir, "go.mod", "module example.com/part\n\ngo 1.26") },
		"the Go version":   func(_ string, _ *Part, version *string) { *version = "go1.27" },
		"the linker flags": func(_ string, part *Part, _ *string) { part.Linker = "-s" },
		"the build tags":   func(_ string, part *Part, _ *string) { part.Tags = "seccomp" },
		"cgo":              func(_ string, part *Part, _ *string) { part.CGO = true },
	} {
		t.Run(change, func(t *testing.T) {
			dir, changed, version := module(t), part, "go1.26"
			before, err := changed.key(dir, version)
			if err != nil {
				t.Fatal(err)
			}
			apply(dir, &changed, &version)
			after, err := changed.key(dir, version)
			if err != nil {
				t.Fatal(err)
			}
			if before == after {
				t.Error("the key stays the same")
			}
		})
	}
}

func TestPartIsNotRebuiltForItsTestsOrItsDirectory(t *testing.T) {
	part := Part{Name: "part", Packages: []string{"."}}
	here, there := module(t), module(t)
	write(t, there, "sub/main_test.go", "package main")
	write(t, there, "README.md", "words")
	one, err := part.key(here, "go1.26")
	if err != nil {
		t.Fatal(err)
	}
	other, err := part.key(there, "go1.26")
	if err != nil {
		t.Fatal(err)
	}
	if one != other {
		t.Errorf("keys %s and %s", one, other)
	}
}
