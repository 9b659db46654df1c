package supervisor

import (
	"bytes"
	"context"
	"log"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/localcluster/internal/require"
)

func run(t *testing.T, components ...Component) (dir string, ended <-chan error, stop func()) {
	t.Helper()
	dir = t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	s := &Supervisor{Cluster: dir, Dir: dir, Logs: dir, Components: components}
	go func() { result <- s.Run(ctx) }()
	return dir, result, cancel
}

func shell(script string) []string { return []string{"/bin/sh", "-c", script} }

func eventually(t *testing.T, dir, file, want string) {
	t.Helper()
	var got []byte
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		got, _ = os.ReadFile(filepath.Join(dir, file)) // it may not be there yet
		if string(got) == want {
			return
		}
	}
	t.Fatalf("%s holds %q, want %q", file, got, want)
}

func TestComponentStartsWhenItsDependenciesAreReady(t *testing.T) {
	dir, _, stop := run(t,
		Component{Name: "second", After: []string{"first"}, Task: true, Command: shell("cat first >> second")},
		Component{Name: "first", Task: true, Command: shell("printf done > first")},
	)
	defer stop()
	eventually(t, dir, "second", "done")
}

func TestComponentThatExitsIsRestarted(t *testing.T) {
	dir, _, stop := run(t, Component{Name: "server", Command: shell("printf x >> starts; [ -e stay ] && sleep 1000; touch stay; sleep 0.2")})
	defer stop()
	eventually(t, dir, "starts", "xx")
}

func TestSupervisorExitsIfAComponentCannotStart(t *testing.T) {
	never := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	_, ended, stop := run(t, Component{Name: "server", Command: shell("exit 3"), Ready: never})
	defer stop()
	err := <-ended
	require.True(t, err != nil && strings.Contains(err.Error(), "server cannot start") && strings.Contains(err.Error(), "exit code 3"), "got %v", err)
}

func TestComponentsFindTheirOwnProgramsFirst(t *testing.T) {
	dir, _, stop := run(t, Component{Name: "task", Task: true, Path: []string{"/own"}, Command: shell(`printf "${PATH%%:*}" > path`)})
	defer stop()
	eventually(t, dir, "path", "/own")
}

func TestSupervisorPrintsWhyAComponentPanicked(t *testing.T) {
	var printed bytes.Buffer
	log.SetOutput(&printed)
	defer log.SetOutput(os.Stderr)
	never := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	_, ended, stop := run(t, Component{Name: "server", Command: shell("echo begins; echo 'panic: no such map'; seq 1000; exit 2"), Ready: never})
	defer stop()
	<-ended
	require.True(t, strings.Contains(printed.String(), "panic: no such map\n1\n2\n") && !strings.Contains(printed.String(), "\n1000"),
		"printed %s", printed.String())
}
