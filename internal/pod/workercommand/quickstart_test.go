package workercommand

import (
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/yardmaster/yardmaster/test/output"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/ports"
	"github.com/yardmaster/yardmaster/test/queuetest"
	"github.com/yardmaster/yardmaster/test/require"
)

const quickstarts = "../../../examples/quickstart/"

// maxQuickstartLines bounds a quick start, without its imports and the comment of its package.
const maxQuickstartLines = 20

// Each quick start of docs/worker.md is short, does a job, makes a dead letter of an invalid one, and exits on SIGTERM.
func TestTheQuickStartOfEachLanguageRunsJobs(t *testing.T) {
	t.Parallel()
	for file, row := range map[string]struct {
		// command runs the program; without one, the worker does.
		command   []string
		isForward bool
	}{
		"worker.py":  {[]string{"python3", quickstarts + "worker.py"}, true},
		"worker.mjs": {[]string{"node", quickstarts + "worker.mjs"}, true},
		"worker.sh":  {},
		"go/main.go": {},
	} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			requireShortAndDocumented(t, file)
			// A program writes a line in parts, so nothing else writes to jobs.
			q, jobs, log, address := queuetest.Start(t, "orders"), &output.Buffer{}, &output.Buffer{}, ports.Reserve(t).String()
			_, port, _ := net.SplitHostPort(address)
			switch {
			case row.isForward:
				startProgram(t, jobs, log, row.command, "PORT="+port)
				runCommand(t, q, log, "--forward", "http://"+address)
			case file == "go/main.go":
				program, config := filepath.Join(t.TempDir(), "worker"), filepath.Join(t.TempDir(), "worker.yaml")
				text, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./"+quickstarts+"go").CombinedOutput()
				require.True(t, err == nil, "%v: %s", err, text)
				require.NoError(t, os.WriteFile(config, []byte("broker: {url: "+q.URL+"}\nqueues: [{name: orders}]\nadminAddress: \"0\"\n"), 0o600))
				startProgram(t, jobs, log, []string{program}, "YARDMASTER_CONFIG_FILE="+config)
			default:
				runCommand(t, q, jobs, "--exec", "--", quickstarts+file)
			}
			q.SendWithHeaders(`{"id":7}`, nats.Header{"Nats-Msg-Id": {"order-7"}})
			q.Send("invalid")
			poll.Until(t, "both jobs to be settled", func() bool {
				stats := q.Stats()
				isDone := strings.Contains(strings.ReplaceAll(jobs.String(), `"id": 7`, `"id":7`), `job order-7 {"id":7}`)
				return isDone && stats.Ready+stats.InFlight == 0 && stats.DeadLetters == 1
			})
		})
	}
}

func requireShortAndDocumented(t *testing.T, file string) {
	t.Helper()
	code, err := os.ReadFile(quickstarts + file)
	require.NoError(t, err)
	docs, err := os.ReadFile("../../../docs/worker.md")
	require.NoError(t, err)
	text := string(code)
	if begin := strings.Index(text, "func main()"); begin > 0 {
		text = text[begin:]
	}
	require.True(t, strings.Contains(string(docs), text), "docs/worker.md does not contain %s", file)
	lines := strings.Count(text, "\n")
	require.True(t, lines <= maxQuickstartLines, "%s has %d lines, want at most %d", file, lines, maxQuickstartLines)
}

// startProgram starts a program, and at the end of the test requires that it exits on SIGTERM.
func startProgram(t *testing.T, output, log io.Writer, command []string, environment string) {
	t.Helper()
	program := exec.CommandContext(context.WithoutCancel(t.Context()), command[0], command[1:]...)
	program.Env = append(os.Environ(), environment)
	program.Stdout, program.Stderr = output, log
	require.NoError(t, program.Start())
	t.Cleanup(func() {
		_ = program.Process.Signal(syscall.SIGTERM)
		defer time.AfterFunc(time.Minute, func() { _ = program.Process.Kill() }).Stop()
		if err := program.Wait(); err != nil {
			t.Errorf("the program exited on SIGTERM with %v: %v%v", err, output, log)
		}
	})
}
