package build

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/yardmaster/yardmaster/localcluster/internal/progress"
)

func builder(t *testing.T, source string) Builder {
	t.Helper()
	b := Builder{Source: t.TempDir(), Cache: filepath.Join(t.TempDir(), "programs"), Progress: progress.Plain(io.Discard)}
	write(t, b.Source, "modules/part/go.mod", "module example.com/part\n\ngo 1.26")
	write(t, b.Source, "modules/part/main.go", source)
	return b
}

var parts = []Part{{Name: "part", Packages: []string{"."}}}

func TestAPartIsBuiltOnce(t *testing.T) {
	b := builder(t, `package main; func main() { print("built") }`)
	programs, err := b.Build(t.Context(), parts)
	if err != nil {
		t.Fatal(err)
	}
	output, err := exec.Command(programs.Path(parts[0], "part")).CombinedOutput()
	if err != nil || string(output) != "built" {
		t.Errorf("the program says %q, %v", output, err)
	}
	missing, err := b.Missing(t.Context(), parts)
	if err != nil || len(missing) != 0 {
		t.Errorf("missing %v, %v", missing, err)
	}
}

func TestFailedBuildReturnsTheReasonAndLeavesNoFiles(t *testing.T) {
	b := builder(t, `package main; func main() { undefined() }`)
	_, err := b.Build(t.Context(), parts)
	if err == nil || !strings.Contains(err.Error(), "main.go:1:29: undefined: undefined") {
		t.Errorf("got %v", err)
	}
	if err != nil && slices.Contains(strings.Split(err.Error(), "\n"), "example.com/part") {
		t.Errorf("a package name that go build -v prints is in the error: %v", err)
	}
	left, err := os.ReadDir(b.Cache)
	if err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
}
