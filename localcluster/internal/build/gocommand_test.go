package build

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/localcluster/internal/progress"
)

func TestOnlyPackagesThatAreNotInGosCacheAreCounted(t *testing.T) {
	b := builder(t, `package main; import _ "example.com/part/sub"; func main() {}`)
	write(t, b.Source, "modules/part/sub/sub.go", "package sub")
	if _, err := b.Build(t.Context(), parts); err != nil {
		t.Fatal(err)
	}
	// New content each time, so that no earlier run of this test compiled it.
	write(t, b.Source, "modules/part/sub/sub.go", fmt.Sprintf("package sub; const Time = %d", time.Now().UnixNano()))
	plan, err := b.plan(t.Context(), parts)
	if err != nil {
		t.Fatal(err)
	}
	var statuses []progress.Status
	report := func(s progress.Status) { statuses = append(statuses, s) }
	packages, err := plan[0].load(t.Context(), report)
	if err != nil || packages != 2 {
		t.Fatalf("%d packages, %v", packages, err)
	}
	if err := b.build(t.Context(), plan[0], packages, report); err != nil {
		t.Fatal(err)
	}
	want := []progress.Status{
		{Activity: "reading sources"},
		{Activity: "compiling packages", Done: 0, Total: 2},
		{Activity: "compiling packages", Done: 1, Total: 2},
		{Activity: "linking"},
	}
	if !reflect.DeepEqual(statuses, want) {
		t.Errorf("got %v", statuses)
	}
}

// fakeGo puts a shell script in the place of the go command.
func fakeGo(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(log), "list -deps first") {
		t.Errorf("the first part is downloaded twice:\n%s", log)
	}
}

func TestNoProcessOfTheGoCommandOutlivesTheContext(t *testing.T) {
	fakeGo(t, "sleep 1000 >/dev/null 2>&1 & echo $!; wait")
	ctx, cancel := context.WithCancel(t.Context())
	pid := ""
	err := item{module: t.TempDir()}.goCommand(ctx, nil, nil, func(line string) {
		pid = line
		cancel()
	})
	if !errors.Is(err, context.Canceled) || pid == "" {
		t.Fatalf("process %q, %v", pid, err)
	}
	// The kernel delivers SIGKILL asynchronously, and the process may remain as a zombie.
	for {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
	}
}
