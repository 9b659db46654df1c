package workercommand

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/worker"
)

// newScriptRunner returns a runner that runs a shell script for each job, and the output of
// the scripts.
func newScriptRunner(script string) (*commandRunner, *bytes.Buffer) {
	out := &bytes.Buffer{}
	return &commandRunner{command: []string{"/bin/sh", "-c", script}, out: out, errOut: &bytes.Buffer{}}, out
}

func TestExitCodeDecidesWhatHappensToTheJob(t *testing.T) {
	for name, row := range map[string]struct{ script, want string }{
		"exit code 0":                       {"exit 0", "done"},
		"exit code 0 without reading input": {"exec 0<&-; exit 0", "done"},
		"exit code 65":                      {"echo no such order >&2; exit 65", "dead: exit status 65: no such order"},
		"exit code 75":                      {"exit 75", "retry: exit status 75:"},
		"any other exit code":               {"echo oh no >&2; exit 1", "retry: exit status 1: oh no"},
		"killed by a signal":                {"kill -9 $$", "retry: signal: killed:"},
		"exit code 0 with a running child":  {"sleep 60 & exit 0", "done"},
	} {
		t.Run(name, func(t *testing.T) {
			e, _ := newScriptRunner(row.script)
			require.Equal(t, row.want, describeResult(e.handle(t.Context(), newJob())))
		})
	}
	t.Run("a command that cannot start snoozes the job", func(t *testing.T) {
		e := &commandRunner{command: []string{filepath.Join(t.TempDir(), "none")}}
		require.Equal(t, "snoozed", describeResult(e.handle(t.Context(), newJob())))
	})
}

func TestCommandReceivesTheJobWithoutArguments(t *testing.T) {
	e, out := newScriptRunner(`cat; echo; echo "$# $YARDMASTER_JOB_ID $YARDMASTER_JOB_KIND $YARDMASTER_JOB_QUEUE $YARDMASTER_JOB_PRIORITY ` +
		`$YARDMASTER_JOB_ATTEMPT $YARDMASTER_JOB_MAX_ATTEMPTS $YARDMASTER_JOB_SENT"; echo "$YARDMASTER_JOB_HEADERS"`)
	j := newJob()
	j.Payload = []byte("$(touch x); `id`")
	j.Headers = map[string][]string{"PATH": {"forged"}, "a\x00": {"$(id)"}}
	require.NoError(t, e.handle(t.Context(), j))
	want := "$(touch x); `id`\n0 7 bill orders high 2 5 2026-03-01T12:00:00Z\n" + `{"PATH":["forged"],"a\u0000":["$(id)"]}` + "\n"
	require.Equal(t, want, out.String())
	j.Headers = map[string][]string{"Big": {strings.Repeat("x", maxHeaderBytes)}}
	err := e.handle(t.Context(), j)
	require.True(t, worker.IsDeadLetter(err), "headers that are too long cause %v, want a dead letter", err)
}

// Otherwise no attempt could start, and the job would return to its queue without end.
func TestAKindThatNoEnvironmentVariableCanHaveIsOmitted(t *testing.T) {
	e, out := newScriptRunner(`echo "kind: $YARDMASTER_JOB_KIND"`)
	j := newJob()
	j.Kind = "a\x00b"
	err := e.handle(t.Context(), j)
	require.True(t, err == nil && out.String() == "kind: \n", "the command wrote %q: %v", out, err)
	header := http.Header{}
	setJobHeaders(header, j)
	require.True(t, header["Yardmaster-Job-Kind"] == nil, "a request has the header %q", header["Yardmaster-Job-Kind"])
}

func TestProcessGroupIsTerminatedWhenTheContextEnds(t *testing.T) {
	for name, row := range map[string]struct {
		script  string
		maxTime time.Duration
	}{
		"a command that handles SIGTERM exits at once":            {"sleep 60 & echo $! >%s; wait", terminationGracePeriod},
		"one that exits with 0 on SIGTERM has not succeeded":      {"trap 'exit 0' TERM; sleep 60 & echo $! >%s; wait", terminationGracePeriod},
		"a command that ignores SIGTERM is killed a little later": {"trap '' TERM; sleep 60 & echo $! >%s; wait; sleep 60", 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			err := poll.UntilNil(t.Context(), func() error { // a busy machine can be late
				if took := cancelScript(t, row.script); took > row.maxTime {
					return fmt.Errorf("termination took %s, want at most %s", took, row.maxTime)
				}
				return nil
			})
			require.NoError(t, err)
		})
	}
}

// cancelScript cancels a script that has a child process, and returns how long the termination took.
func cancelScript(t *testing.T, script string) (took time.Duration) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pid")
	e, _ := newScriptRunner(strings.Replace(script, "%s", file, 1))
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.handle(ctx, newJob()) }()
	pid := 0
	poll.Until(t, "the child process to run", func() bool {
		text, _ := os.ReadFile(file)
		pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		return pid > 0
	})
	startedAt := time.Now()
	cancel(worker.ErrCanceled)
	require.ErrorIs(t, <-done, context.Canceled)
	took = time.Since(startedAt)
	poll.Until(t, "the child process to exit", func() bool { return hasExited(pid) })
	return took
}

// hasExited reports whether a process has exited. Zombie processes have exited, too.
func hasExited(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return err != nil || bytes.Contains(stat, []byte(") Z "))
}

func TestCommandThatExceedsItsTimeLimitIsRetried(t *testing.T) {
	e, _ := newScriptRunner("sleep 60")
	e.timeout = 50 * time.Millisecond
	require.Equal(t, "retry: the command exceeded its time limit", describeResult(e.handle(t.Context(), newJob())))
}
