package runner

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	sessions "github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/internal/pod/agentprofile"
	"github.com/yardmaster/yardmaster/test/output"
	"github.com/yardmaster/yardmaster/test/require"
)

// testSession is a session whose agent is a shell script.
type testSession struct {
	t           *testing.T
	environment map[string]string
	// grace is the time that the agent and its processes have to end.
	grace string
	out   *output.Buffer
	// isProcess is true if the runner is a process of its own, which has no environment but that of the session.
	isProcess bool
}

// newTestSession returns a session with a prompt, and with the files that the operator mounts.
func newTestSession(t *testing.T, prompt string) *testSession {
	t.Helper()
	directory := t.TempDir()
	for name, value := range map[string]string{"prompt": prompt, "session.json": encodeInputs(t, &sessions.RunnerInputs{}), "result": ""} {
		writeTestFile(t, filepath.Join(directory, name), value)
	}
	return &testSession{t: t, grace: "2s", out: &output.Buffer{}, environment: map[string]string{
		"AGENTIC_SESSION": "demo", "AGENTIC_NAMESPACE": "a", "AGENTIC_JOB": "demo-r1-a1", "AGENTIC_RUN": "1", "AGENTIC_ATTEMPT": "1",
		"AGENTIC_PROMPT_FILE": filepath.Join(directory, "prompt"), "AGENTIC_SESSION_FILE": filepath.Join(directory, "session.json"),
		"AGENTIC_RESULT_FILE": filepath.Join(directory, "result"), "AGENTIC_RESULT_MAX_BYTES": "3072", "AGENTIC_WORKSPACE": t.TempDir(),
		"HOME": t.TempDir(),
	}}
}

func encodeInputs(t *testing.T, in *sessions.RunnerInputs) string {
	t.Helper()
	in.Name, in.Namespace = "demo", "a"
	raw, err := json.Marshal(in)
	require.NoError(t, err)
	return string(raw)
}

func writeTestFile(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

func (s *testSession) set(variables map[string]string) *testSession {
	maps.Copy(s.environment, variables)
	return s
}

func (s *testSession) setInputs(in *sessions.RunnerInputs) *testSession {
	writeTestFile(s.t, s.environment["AGENTIC_SESSION_FILE"], encodeInputs(s.t, in))
	return s
}

func (s *testSession) setRepository(repo *v1alpha1.SessionRepo) *testSession {
	return s.setInputs(&sessions.RunnerInputs{Repos: []sessions.RunnerRepo{{SessionRepo: *repo, Directory: "shop"}}})
}

func (s *testSession) run(profile, script string) (int, error) {
	s.t.Helper()
	return s.runWith(s.t.Context(), "--profile", profile, "--grace-period", s.grace, "--push-grace-period", "1m", "--", "sh", "-c", script)
}

func (s *testSession) runWith(ctx context.Context, args ...string) (int, error) {
	s.t.Helper()
	if !s.isProcess {
		return Run(ctx, args, func(name string) string { return s.environment[name] }, s.out, s.out)
	}
	runner := s.start(ctx, os.Args[0], args, s.out)
	if err := runner.Wait(); !runner.ProcessState.Exited() {
		return 0, err
	}
	return runner.ProcessState.ExitCode(), nil
}

// start starts a program with the environment of the session. When ctx ends, the program is terminated.
func (s *testSession) start(ctx context.Context, program string, args []string, out io.Writer) *exec.Cmd {
	s.t.Helper()
	command := exec.CommandContext(ctx, program, args...)
	command.Env, command.Stdout, command.Stderr = s.environ(), out, out
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = time.Minute
	require.NoError(s.t, command.Start())
	return command
}

func (s *testSession) environ() (all []string) {
	for name, value := range s.environment {
		all = append(all, name+"="+value)
	}
	return all
}

func (s *testSession) mustRun(profile, script string) {
	s.t.Helper()
	code, err := s.run(profile, script)
	require.True(s.t, code == exitSuccess && err == nil, "code %d, error %v: %s", code, err, s.out)
}

// result reads the result as the operator does.
func (s *testSession) result() *sessions.RunnerResult {
	s.t.Helper()
	raw, err := os.ReadFile(s.environment["AGENTIC_RESULT_FILE"])
	require.NoError(s.t, err)
	result, err := sessions.ParseResult(string(raw))
	require.True(s.t, err == nil, "result %q: %v", raw, err)
	return result
}

// events returns what the runner wrote.
func (s *testSession) events() []agentprofile.Event {
	s.t.Helper()
	var all []agentprofile.Event
	for line := range strings.Lines(s.out.String()) {
		event := agentprofile.Event{}
		err := json.Unmarshal([]byte(line), &event)
		require.True(s.t, err == nil, "line %q: %v", line, err)
		all = append(all, event)
	}
	return all
}
