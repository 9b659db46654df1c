package build

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/localcluster/internal/progress"
	"github.com/yardmaster/yardmaster/localcluster/internal/require"
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
	require.NoError(t, err)
	output, err := exec.Command(programs.Path(parts[0], "part")).CombinedOutput()
	require.True(t, err == nil && string(output) == "built", "the program says %q, %v", output, err)
	missing, err := b.Missing(t.Context(), parts)
	require.True(t, err == nil && len(missing) == 0, "missing %v, %v", missing, err)
}

func TestFailedBuildReturnsTheReasonAndLeavesNoFiles(t *testing.T) {
	b := builder(t, `package main; func main() { undefined() }`)
	_, err := b.Build(t.Context(), parts)
	require.True(t, err != nil && strings.Contains(err.Error(), "main.go:1:29: undefined: undefined"), "got %v", err)
	require.True(t, err == nil || !slices.Contains(strings.Split(err.Error(), "\n"), "example.com/part"),
		"a package name that go build -v prints is in the error: %v", err)
	left, err := os.ReadDir(b.Cache)
	require.True(t, err == nil && len(left) == 0, "left %v, %v", left, err)
}

func TestOnlyPackagesThatAreNotInGosCacheAreCounted(t *testing.T) {
	b := builder(t, `package main; import _ "example.com/part/sub"; func main() {}`)
	write(t, b.Source, "modules/part/sub/sub.go", "package sub")
	if _, err := b.Build(t.Context(), parts); err != nil {
		t.Fatal(err)
	}
	// New content each time, so that no earlier run of this test compiled it.
	write(t, b.Source, "modules/part/sub/sub.go", fmt.Sprintf("package sub; const Time = %d", time.Now().UnixNano()))
	plan, err := b.plan(t.Context(), parts)
	require.NoError(t, err)
	var statuses []progress.Status
	report := func(s progress.Status) { statuses = append(statuses, s) }
	packages, err := plan[0].load(t.Context(), report)
	require.True(t, err == nil && packages == 2, "%d packages, %v", packages, err)
	require.NoError(t, b.build(t.Context(), plan[0], packages, report))
	want := []progress.Status{
		{Activity: "reading sources"},
		{Activity: "compiling packages", Done: 0, Total: 2},
		{Activity: "compiling packages", Done: 1, Total: 2},
		{Activity: "linking"},
	}
	require.True(t, reflect.DeepEqual(statuses, want), "got %v", statuses)
}

// fakeGo puts a shell script in the place of the go command.
func fakeGo(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go"), []byte("#!/bin/sh\n"+script), 0o700))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func TestModulesOfLaterPartsAreDownloadedWhileTheFirstIsCompiled(t *testing.T) {
	b := Builder{Source: t.TempDir(), Cache: filepath.Join(t.TempDir(), "programs"), Progress: progress.Plain(t.Output())}
	three := []Part{{Name: "first"}, {Name: "second"}, {Name: "third"}}
	for _, part := range three {
		write(t, b.Source, "modules/"+part.Name+"/go.mod", "module example.com/"+part.Name)
	}
	// The first part is compiled only after the last download, and downloads fail.
	fakeGo(t, `
log=`+b.Source+`/log
echo "$1 $2 ${PWD##*/}" >> $log
case "$*" in
"list -deps "*) exit 1 ;;
*" -v "*) until grep -q "list -deps third" $log; do sleep 0.01; done ;;
esac`)
	if _, err := b.Build(t.Context(), three); err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(filepath.Join(b.Source, "log"))
	require.NoError(t, err)
	require.True(t, !strings.Contains(string(log), "list -deps first"), "the first part is downloaded twice:\n%s", log)
}

func TestNoProcessOfTheGoCommandOutlivesTheContext(t *testing.T) {
	fakeGo(t, "sleep 1000 >/dev/null 2>&1 & echo $!; wait")
	ctx, cancel := context.WithCancel(t.Context())
	pid := ""
	err := item{module: t.TempDir()}.goCommand(ctx, nil, nil, func(line string) {
		pid = line
		cancel()
	})
	require.True(t, errors.Is(err, context.Canceled) && pid != "", "process %q, %v", pid, err)
	// The kernel delivers SIGKILL asynchronously, and the process may remain as a zombie.
	for {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
	}
}

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
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
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
			require.NoError(t, err)
			apply(dir, &changed, &version)
			after, err := changed.key(dir, version)
			require.NoError(t, err)
			require.True(t, before != after, "the key stays the same")
		})
	}
}

func TestPartIsNotRebuiltForItsTestsOrItsDirectory(t *testing.T) {
	part := Part{Name: "part", Packages: []string{"."}}
	here, there := module(t), module(t)
	write(t, there, "sub/main_test.go", "package main")
	write(t, there, "README.md", "words")
	one, err := part.key(here, "go1.26")
	require.NoError(t, err)
	other, err := part.key(there, "go1.26")
	require.NoError(t, err)
	require.True(t, one == other, "keys %s and %s", one, other)
}
