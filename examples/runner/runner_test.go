package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	sessions "github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestMain(m *testing.M) {
	log.SetOutput(io.Discard)
	os.Exit(m.Run())
}

// newSessionFiles returns the environment of a runner at the first attempt of a session named demo.
func newSessionFiles(t *testing.T, prompt string, changes map[string]string) func(string) string {
	t.Helper()
	directory := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(directory, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	inputs, err := json.Marshal(sessions.RunnerInputs{
		Name: "demo", Namespace: "a", Agent: v1alpha1.SessionAgent{Model: "small"},
		Repos: []sessions.RunnerRepo{{SessionRepo: v1alpha1.SessionRepo{GitSource: v1alpha1.GitSource{URL: "https://git.example/shop.git", Branch: "main"}}, Directory: "shop"}},
	})
	require.NoError(t, err)
	environment := map[string]string{
		"AGENTIC_SESSION": "demo", "AGENTIC_NAMESPACE": "a", "AGENTIC_JOB": "demo-r1-a1", "AGENTIC_ATTEMPT": "1",
		"AGENTIC_PROMPT_FILE": file("prompt", prompt), "AGENTIC_SESSION_FILE": file("session.json", string(inputs)),
		"AGENTIC_RESULT_FILE": file("result", ""), "AGENTIC_RESULT_MAX_BYTES": "3072", "AGENTIC_WORKSPACE": t.TempDir(),
	}
	maps.Copy(environment, changes)
	return func(name string) string { return environment[name] }
}

func mustRun(t *testing.T, getenv func(string) string) {
	t.Helper()
	code, err := runAndWriteResult(t.Context(), getenv, io.Discard)
	require.True(t, code == exitSuccess && err == nil, "code %d, error %v", code, err)
}

// readResult reads the result as the operator does.
func readResult(t *testing.T, getenv func(string) string) *sessions.RunnerResult {
	t.Helper()
	raw, err := os.ReadFile(getenv("AGENTIC_RESULT_FILE"))
	require.NoError(t, err)
	result, err := sessions.ParseResult(string(raw))
	require.True(t, err == nil, "result %q: %v", raw, err)
	return result
}

func TestPromptCommands(t *testing.T) {
	for title, row := range map[string]struct {
		prompt, attempt string
		code            int
		summary, cost   string
		err             string
	}{
		"lines are echoed and counted":                         {"one\n\ntwo three\n", "1", exitSuccess, "Echoed 2 lines", "", ""},
		"an empty prompt":                                      {"", "1", exitSuccess, "Echoed 0 lines", "", ""},
		"costs are summed":                                     {"/cost 0.1\none\n/cost 0.02", "1", exitSuccess, "Echoed 1 lines", "0.12", ""},
		"/sleep and /idle wait":                                {"/sleep 1ms\n/idle 1ms\none", "1", exitSuccess, "Echoed 1 lines", "", ""},
		"/fail exits with a code and writes a result":          {"/cost 1\none\n/fail 3\ntwo", "1", 3, "Echoed 1 lines", "1", ""},
		"/fail with a number of attempts fails at the first":   {"/fail 3 1\none", "1", 3, "Echoed 0 lines", "", ""},
		"/fail with a number of attempts succeeds at the next": {"/fail 3 1\none", "2", exitSuccess, "Echoed 1 lines", "", ""},
		"/exit skips the remaining lines":                      {"one\n/exit\ntwo", "1", exitSuccess, "Echoed 1 lines", "", ""},
		"an unknown command":                                   {"one\n/dance", "1", exitFailure, "Echoed 1 lines", "", "unknown command /dance"},
		"an invalid duration":                                  {"/sleep long", "1", exitFailure, "Echoed 0 lines", "", `/sleep: time: invalid duration "long"`},
		"an address without a port":                            {"/connect here", "1", exitFailure, "Echoed 0 lines", "", "/connect: address here: missing port in address"},
		"an exit code above 255":                               {"/fail 256", "1", exitFailure, "Echoed 0 lines", "", `/fail: strconv.ParseUint: parsing "256": value out of range`},
		"a file outside the workspace":                         {"/write ../x one", "1", exitFailure, "Echoed 0 lines", "", `/write: "../x" is not a path in the workspace`},
		"/done without a Lease":                                {"/done", "1", exitFailure, "Echoed 0 lines", "", "/done: the session has no Lease; set activityLease in its SessionRunner"},
	} {
		t.Run(title, func(t *testing.T) {
			getenv := newSessionFiles(t, row.prompt, map[string]string{"AGENTIC_ATTEMPT": row.attempt})
			code, err := runAndWriteResult(t.Context(), getenv, io.Discard)
			if code != row.code || (row.err == "") != (err == nil) || err != nil && err.Error() != row.err {
				t.Errorf("code %d, want %d; error %v, want %q", code, row.code, err, row.err)
			}
			result, cost := readResult(t, getenv), ""
			if result.CostUSD != nil {
				cost = string(*result.CostUSD)
			}
			require.True(t, result.Summary == row.summary && cost == row.cost && result.SDKSessionID == "demo-r1-a1",
				"result %+v, cost %q", result, cost)
		})
	}
}

func TestIncompleteEnvironmentFailsAtStart(t *testing.T) {
	for _, variable := range []string{
		"AGENTIC_SESSION", "AGENTIC_JOB", "AGENTIC_ATTEMPT", "AGENTIC_PROMPT_FILE", "AGENTIC_SESSION_FILE", "AGENTIC_WORKSPACE", "AGENTIC_RESULT_FILE",
	} {
		code, err := runAndWriteResult(t.Context(), newSessionFiles(t, "one", map[string]string{variable: ""}), io.Discard)
		require.True(t, code == exitFailure && err != nil && strings.HasSuffix(err.Error(), variable+" is not set"),
			"%s: code %d, error %v", variable, code, err)
	}
}

// writerFunc is called for each write.
type writerFunc func()

func (do writerFunc) Write(p []byte) (int, error) {
	do()
	return len(p), nil
}

func TestTerminatedRunResumesAfterTheLastLine(t *testing.T) {
	getenv := newSessionFiles(t, "/write notes one\nnow\n/write notes two\nthree", nil)
	ctx, cancel := context.WithCancel(t.Context())
	code, err := runAndWriteResult(ctx, getenv, writerFunc(cancel))
	require.True(t, code == exitTerminated && err == nil, "code %d, error %v", code, err)
	require.Equal(t, "Echoed 1 lines", readResult(t, getenv).Summary)
	mustRun(t, getenv)
	notes, err := os.ReadFile(filepath.Join(getenv("AGENTIC_WORKSPACE"), "notes"))
	require.NoError(t, err)
	require.Equal(t, "one\ntwo\n", string(notes))
	require.Equal(t, "Echoed 1 lines, resumed after line 2", readResult(t, getenv).Summary)
}

func TestNextRunRepeatsCompletedPromptInTheSameConversation(t *testing.T) {
	getenv := newSessionFiles(t, "one", map[string]string{"AGENTIC_SDK_SESSION_ID": "demo-r0-a1"})
	for range 2 {
		mustRun(t, getenv)
		got := readResult(t, getenv)
		require.True(t, got.Summary == "Echoed 1 lines" && got.SDKSessionID == "demo-r0-a1", "result %+v", got)
	}
}

func TestResultFitsTerminationMessage(t *testing.T) {
	const maxResultBytes = 3072
	for _, part := range []string{"x", "é", "\n\"", "\xff"} {
		text := marshalWithinLimit(&result{Summary: strings.Repeat(part, 9000), SDKSessionID: "x"}, maxResultBytes)
		parsed, err := sessions.ParseResult(text)
		require.NoError(t, err)
		require.True(t, len(text) <= maxResultBytes && parsed.SDKSessionID == "x" && parsed.Summary != "", "%q: %d bytes", part, len(text))
	}
}

// newTestAgent returns an agent and its output.
func newTestAgent(t *testing.T, changes map[string]string) (*agent, *bytes.Buffer) {
	t.Helper()
	s, err := readSession(newSessionFiles(t, "", changes))
	require.NoError(t, err)
	var out bytes.Buffer
	a, err := newAgent(s, &leaseClient{renewInterval: time.Hour}, &out)
	require.NoError(t, err)
	t.Cleanup(a.closeWorkspace)
	return a, &out
}

func postMessage(t *testing.T, url, text string) (status int, answer string) {
	t.Helper()
	response, err := http.Post(url, "text/plain", strings.NewReader(text))
	require.NoError(t, err)
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(raw)
}

func TestMessagesAreAnsweredUntilOneEndsTheSession(t *testing.T) {
	a, _ := newTestAgent(t, map[string]string{"AGENTIC_PORT": "8080"})
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ended, url := make(chan error, 1), "http://"+listener.Addr().String()
	go func() { ended <- a.serveMessages(t.Context(), listener) }()
	for _, row := range [][]string{
		{"hello\nthere", "hello\nthere\n"},
		{"/dance\nhello", "error: unknown command /dance\nhello\n"},
		{"/done", "error: /done: the session has no Lease; set activityLease in its SessionRunner\n"},
		{"/write f x\ndid", "did\n"},
		{"", ""},
		{"bye\n/fail 4\nnever", "bye\n"},
	} {
		status, answer := postMessage(t, url, row[0])
		require.True(t, status == http.StatusOK && answer == row[1], "the answer to %q is %d %q, want %q", row[0], status, answer, row[1])
		if row[0] == "" {
			status, _ := postMessage(t, url, strings.Repeat("x", maxMessageBytes+1))
			require.Equal(t, http.StatusBadRequest, status)
		}
	}
	require.ErrorIs(t, <-ended, exitCodeError(4))
}
