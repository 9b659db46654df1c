package workercommand

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/worker"
)

// script is an executor of a few lines of shell: the test's, not the job's.
func script(lines string) (*executor, *bytes.Buffer) {
	out := &bytes.Buffer{}
	return &executor{command: []string{"/bin/sh", "-c", lines}, out: out, errOut: &bytes.Buffer{}}, out
}

func TestAnExitCodeDecides(t *testing.T) {
	for name, row := range map[string]struct{ lines, want string }{
		"0":                            {"exit 0", "done"},
		"0, without reading":           {"exec 0<&-; exit 0", "done"},
		"65":                           {"echo no such order >&2; exit 65", "dead: exit status 65: no such order"},
		"75":                           {"exit 75", "again: exit status 75:"},
		"any other":                    {"echo oh no >&2; exit 1", "again: exit status 1: oh no"},
		"killed":                       {"kill -9 $$", "again: signal: killed:"},
		"0, with somebody left behind": {"sleep 60 & exit 0", "done"},
	} {
		t.Run(name, func(t *testing.T) {
			e, _ := script(row.lines)
			if got := meaning(e.handle(t.Context(), job())); got != row.want {
				t.Errorf("%s, want %s", got, row.want)
			}
		})
	}
	t.Run("a command that cannot start: that was no attempt", func(t *testing.T) {
		e := &executor{command: []string{filepath.Join(t.TempDir(), "none")}}
		if got := meaning(e.handle(t.Context(), job())); got != "put back" {
			t.Error(got)
		}
	})
}

func TestACommandIsToldOfItsJobAndNothingIsAnArgument(t *testing.T) {
	e, out := script(`cat; echo; echo "$# $YARDMASTER_JOB_ID $YARDMASTER_JOB_QUEUE $YARDMASTER_JOB_PRIORITY ` +
		`$YARDMASTER_JOB_ATTEMPT $YARDMASTER_JOB_MAX_ATTEMPTS $YARDMASTER_JOB_SENT"; echo "$YARDMASTER_JOB_HEADERS"`)
	j := job()
	j.Payload = []byte("$(touch x); `id`")
	j.Headers = map[string][]string{"PATH": {"forged"}, "a\x00": {"$(id)"}}
	if err := e.handle(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	want := "$(touch x); `id`\n0 7 orders high 2 5 2026-03-01T12:00:00Z\n" + `{"PATH":["forged"],"a\u0000":["$(id)"]}` + "\n"
	if got := out.String(); got != want {
		t.Errorf("it saw %q, want %q", got, want)
	}
	j.Headers = map[string][]string{"Big": {strings.Repeat("x", longestHeaders)}}
	if err := e.handle(t.Context(), j); !worker.IsDeadLetter(err) {
		t.Errorf("headers that are too long: %v", err)
	}
}

func TestNobodyOfTheGroupOutlivesTheDeadline(t *testing.T) {
	for name, row := range map[string]struct {
		lines string
		most  time.Duration
	}{
		"who listens ends at once":           {"sleep 60 & echo $! >%s; wait", 2 * time.Second},
		"who does not is killed a bit later": {"trap '' TERM; sleep 60 & echo $! >%s; wait; sleep 60", graceful + 2*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "pid")
			e, _ := script(strings.Replace(row.lines, "%s", file, 1))
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- e.handle(ctx, job()) }()
			pid := 0
			eventually(t, "the child is there", func() bool {
				text, _ := os.ReadFile(file)
				pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
				return pid > 0
			})
			began := time.Now()
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("ended with %v", err)
			}
			if took := time.Since(began); took > row.most {
				t.Errorf("after %s", took)
			}
			eventually(t, "its child is gone", func() bool { return gone(pid) })
		})
	}
}

// gone tells whether a process runs no more. One that nobody has waited for yet does not.
func gone(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return err != nil || bytes.Contains(stat, []byte(") Z "))
}

func TestACommandThatTakesTooLongIsTriedAgain(t *testing.T) {
	e, _ := script("sleep 60")
	e.timeout = 50 * time.Millisecond
	if got := meaning(e.handle(t.Context(), job())); got != "again: it took too long" {
		t.Error(got)
	}
}

func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !so(); {
		if time.Now().After(deadline) {
			t.Fatalf("not in 20 s: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
