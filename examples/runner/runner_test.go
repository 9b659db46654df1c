package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	sessions "github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/test/ports"
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
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	inputs, err := json.Marshal(sessions.RunnerInputs{
		Name: "demo", Namespace: "a", Agent: v1alpha1.SessionAgent{Model: "small"},
		Repos: []sessions.RunnerRepo{{SessionRepo: v1alpha1.SessionRepo{GitSource: v1alpha1.GitSource{URL: "https://git.example/shop.git", Branch: "main"}}, Directory: "shop"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	environment := map[string]string{
		"AGENTIC_SESSION": "demo", "AGENTIC_NAMESPACE": "a", "AGENTIC_JOB": "demo-r1-a1", "AGENTIC_ATTEMPT": "1",
		"AGENTIC_PROMPT_FILE": file("prompt", prompt), "AGENTIC_SESSION_FILE": file("session.json", string(inputs)),
		"AGENTIC_RESULT_FILE": file("result", ""), "AGENTIC_RESULT_MAX_BYTES": "3072", "AGENTIC_WORKSPACE": t.TempDir(),
	}
	maps.Copy(environment, changes)
	return func(name string) string { return environment[name] }
}

// readResult reads the result as the operator does.
func readResult(t *testing.T, getenv func(string) string) *sessions.RunnerResult {
	t.Helper()
	raw, err := os.ReadFile(getenv("AGENTIC_RESULT_FILE"))
	if err != nil {
		t.Fatal(err)
	}
	result, err := sessions.ParseResult(string(raw))
	if err != nil {
		t.Fatalf("result %q: %v", raw, err)
	}
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
			if result.Summary != row.summary || cost != row.cost || result.SDKSessionID != "demo-r1-a1" {
				t.Errorf("result %+v, cost %q", result, cost)
			}
		})
	}
}

func TestResultListsReachableAddresses(t *testing.T) {
	address := ports.Reserve(t).String()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	reach := func(want string) {
		t.Helper()
		getenv := newSessionFiles(t, "/connect "+address+"\none", nil)
		if code, err := runAndWriteResult(t.Context(), getenv, io.Discard); code != exitSuccess || err != nil {
			t.Fatalf("code %d, error %v", code, err)
		}
		if got := readResult(t, getenv).Summary; got != want {
			t.Errorf("result %q, want %q", got, want)
		}
	}
	reach("Echoed 1 lines, reached " + address)
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	reach("Echoed 1 lines, did not reach " + address)
}

func TestIncompleteEnvironmentFailsAtStart(t *testing.T) {
	for variable, want := range map[string]string{
		"AGENTIC_SESSION": "AGENTIC_SESSION is not set", "AGENTIC_JOB": "AGENTIC_JOB is not set", "AGENTIC_ATTEMPT": "AGENTIC_ATTEMPT is not set",
		"AGENTIC_PROMPT_FILE": "AGENTIC_PROMPT_FILE is not set", "AGENTIC_SESSION_FILE": "AGENTIC_SESSION_FILE is not set",
		"AGENTIC_WORKSPACE": "AGENTIC_WORKSPACE is not set", "AGENTIC_RESULT_FILE": "AGENTIC_RESULT_FILE is not set",
	} {
		t.Run(variable, func(t *testing.T) {
			code, err := runAndWriteResult(t.Context(), newSessionFiles(t, "one", map[string]string{variable: ""}), io.Discard)
			if code != exitFailure || err == nil || !strings.HasSuffix(err.Error(), want) {
				t.Errorf("code %d, error %v", code, err)
			}
		})
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
	if code, err := runAndWriteResult(ctx, getenv, writerFunc(cancel)); code != exitTerminated || err != nil {
		t.Fatalf("code %d, error %v", code, err)
	}
	if result := readResult(t, getenv); result.Summary != "Echoed 1 lines" {
		t.Errorf("result %+v", result)
	}
	if code, err := runAndWriteResult(t.Context(), getenv, io.Discard); code != exitSuccess || err != nil {
		t.Fatalf("code %d, error %v", code, err)
	}
	notes, err := os.ReadFile(filepath.Join(getenv("AGENTIC_WORKSPACE"), "notes"))
	if diff := cmp.Diff("one\ntwo\n", string(notes)); diff != "" || err != nil {
		t.Errorf("error %v, file (-want +got):\n%s", err, diff)
	}
	if result := readResult(t, getenv); result.Summary != "Echoed 1 lines, resumed after line 2" {
		t.Errorf("result %+v", result)
	}
}

func TestTerminationInterruptsWaiting(t *testing.T) {
	for _, command := range []string{"/sleep 1h", "/idle 1h"} {
		a, _ := newTestAgent(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := a.executeLine(ctx, command); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: error %v", command, err)
		}
	}
}

func TestFirstLineOfAnAttempt(t *testing.T) {
	for title, row := range map[string]struct {
		note string
		want string
	}{
		"a new workspace":                {"", "Echoed 2 lines"},
		"progress of an earlier attempt": {"demo 1\n", "Echoed 1 lines, resumed after line 1"},
		"progress of another session":    {"other 1\n", "Echoed 2 lines"},
		"a partial progress file":        {"de", "Echoed 2 lines"},
		"progress beyond the end":        {"demo 9\n", "Echoed 0 lines, resumed after line 2"},
		"a negative progress":            {"demo -1\n", "Echoed 2 lines"},
	} {
		t.Run(title, func(t *testing.T) {
			getenv := newSessionFiles(t, "one\ntwo", nil)
			if row.note != "" {
				if err := os.WriteFile(filepath.Join(getenv("AGENTIC_WORKSPACE"), progressFile), []byte(row.note), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if code, err := runAndWriteResult(t.Context(), getenv, io.Discard); code != exitSuccess || err != nil {
				t.Fatalf("code %d, error %v", code, err)
			}
			if got := readResult(t, getenv).Summary; got != row.want {
				t.Errorf("summary %q, want %q", got, row.want)
			}
		})
	}
}

func TestNextRunRepeatsCompletedPrompt(t *testing.T) {
	getenv := newSessionFiles(t, "one", nil)
	for range 2 {
		if code, err := runAndWriteResult(t.Context(), getenv, io.Discard); code != exitSuccess || err != nil || readResult(t, getenv).Summary != "Echoed 1 lines" {
			t.Fatalf("code %d, error %v, result %+v", code, err, readResult(t, getenv))
		}
	}
}

func TestSDKSessionIDIsKept(t *testing.T) {
	getenv := newSessionFiles(t, "one", map[string]string{"AGENTIC_SDK_SESSION_ID": "demo-r1-a1", "AGENTIC_JOB": "demo-r2-a1"})
	if code, err := runAndWriteResult(t.Context(), getenv, io.Discard); code != exitSuccess || err != nil || readResult(t, getenv).SDKSessionID != "demo-r1-a1" {
		t.Errorf("code %d, error %v, result %+v", code, err, readResult(t, getenv))
	}
}

func TestResultCommandReplacesTheResult(t *testing.T) {
	getenv := newSessionFiles(t, "/result nonsense", nil)
	if code, err := runAndWriteResult(t.Context(), getenv, io.Discard); code != exitSuccess || err != nil {
		t.Fatalf("code %d, error %v", code, err)
	}
	raw, err := os.ReadFile(getenv("AGENTIC_RESULT_FILE"))
	if string(raw) != "nonsense" || err != nil {
		t.Errorf("result %q, error %v", raw, err)
	}
}

func TestResultFitsTerminationMessage(t *testing.T) {
	for title, summary := range map[string]string{
		"short": "done", "long": strings.Repeat("x", 9000), "long, with multi-byte characters": strings.Repeat("é", 4000),
		"long, with escaped characters": strings.Repeat("\n\"", 4000), "long, with invalid UTF-8": strings.Repeat("\xff", 4000),
	} {
		t.Run(title, func(t *testing.T) {
			const maxResultBytes = 3072
			text := marshalWithinLimit(&result{Summary: summary, SDKSessionID: "x"}, maxResultBytes)
			parsed, err := sessions.ParseResult(text)
			if err != nil || len(text) > maxResultBytes || parsed.SDKSessionID != "x" {
				t.Fatalf("%d bytes, error %v", len(text), err)
			}
			if title == "short" && parsed.Summary != summary {
				t.Errorf("summary %q", parsed.Summary)
			}
			if strings.HasPrefix(title, "long") && parsed.Summary == "" {
				t.Error("the summary is empty")
			}
		})
	}
}

func TestUnwritableResultIsAnError(t *testing.T) {
	getenv := newSessionFiles(t, "one", map[string]string{"AGENTIC_RESULT_FILE": t.TempDir()})
	if _, err := runAndWriteResult(t.Context(), getenv, io.Discard); err == nil || !strings.HasPrefix(err.Error(), "writing the result: ") {
		t.Errorf("error %v", err)
	}
}

func TestExitCodes(t *testing.T) {
	for title, row := range map[string]struct {
		end  error
		code int
	}{
		"completed":             {nil, exitSuccess},
		"a requested exit code": {exitCodeError(7), 7},
		"terminated":            {context.Canceled, exitTerminated},
		"another error":         {errors.New("disk full"), exitFailure},
	} {
		t.Run(title, func(t *testing.T) {
			if code, _ := exitCodeOf(row.end); code != row.code {
				t.Errorf("code %d, want %d", code, row.code)
			}
		})
	}
}

// newTestAgent returns an agent and its output.
func newTestAgent(t *testing.T, changes map[string]string) (*agent, *bytes.Buffer) {
	t.Helper()
	s, err := readSession(newSessionFiles(t, "", changes))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	a, err := newAgent(s, &leaseClient{renewInterval: time.Hour}, &out)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.closeWorkspace)
	return a, &out
}
