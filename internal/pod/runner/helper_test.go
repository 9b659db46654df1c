package runner

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	sessions "github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/internal/pod/agentprofile"
	"github.com/yardmaster/yardmaster/test/output"
)

// testSession is a session whose agent is a shell script.
type testSession struct {
	t           *testing.T
	environment map[string]string
	// grace is the time that the agent and its processes have to end.
	grace string
	out   *output.Buffer
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
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func writeTestFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (s *testSession) set(variables map[string]string) *testSession {
	maps.Copy(s.environment, variables)
	return s
}

func (s *testSession) setInputs(in *sessions.RunnerInputs) *testSession {
	writeTestFile(s.t, s.environment["AGENTIC_SESSION_FILE"], encodeInputs(s.t, in))
	return s
}

// run runs the session with a script as the agent.
func (s *testSession) run(profile, script string) (int, error) {
	s.t.Helper()
	return Run(s.t.Context(), []string{"--profile", profile, "--grace-period", s.grace, "--push-grace-period", "1m", "--", "sh", "-c", script},
		func(name string) string { return s.environment[name] }, s.out, s.out)
}

// result reads the result as the operator does.
func (s *testSession) result() *sessions.RunnerResult {
	s.t.Helper()
	raw, err := os.ReadFile(s.environment["AGENTIC_RESULT_FILE"])
	if err != nil {
		s.t.Fatal(err)
	}
	result, err := sessions.ParseResult(string(raw))
	if err != nil {
		s.t.Fatalf("result %q: %v", raw, err)
	}
	return result
}

// events returns what the runner wrote.
func (s *testSession) events() []agentprofile.Event {
	s.t.Helper()
	var all []agentprofile.Event
	for line := range strings.Lines(s.out.String()) {
		event := agentprofile.Event{}
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			s.t.Fatalf("line %q: %v", line, err)
		}
		all = append(all, event)
	}
	return all
}
