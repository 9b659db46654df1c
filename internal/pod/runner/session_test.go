package runner

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	sessions "github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/internal/pod/agentprofile"
	"github.com/yardmaster/yardmaster/test/output"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

const finished = `echo '{"type":"started","conversation":"c-1","model":"small"}'
echo '{"type":"usage","usage":{"inputTokens":10,"outputTokens":5},"costUSD":0.25}'
echo '{"type":"result","text":"All done."}'
`

func TestSessionWritesTheResultOfItsAgent(t *testing.T) {
	s := newTestSession(t, "Fix it.")
	s.mustRun("events", `test "$(cat)" = "Fix it." && `+finished)
	got := s.result()
	require.True(t, got.Summary == "All done." && got.SDKSessionID == "c-1" && *got.CostUSD == "0.25", "result %+v", got)
	require.Equal(t, `{"inputTokens":10,"outputTokens":5,"model":"small","complete":true}`, string(got.Usage.Raw))
}

func TestAnyCommandCanBeAnAgent(t *testing.T) {
	s := newTestSession(t, "hello")
	s.mustRun("exec", `echo "The prompt is $(cat)."; pwd; echo note >&2`)
	got := s.result()
	require.True(t, got.Summary == "The prompt is hello.\n"+s.environment["AGENTIC_WORKSPACE"] && got.CostUSD == nil && got.Usage == nil,
		"result %+v", got)
}

// Whatever ends an agent, the result says why, in the words of the agent: the operator shows them in the status of the session.
func TestTheResultTellsWhyTheAgentEnded(t *testing.T) {
	const failed = `echo '{"type":"result","text":"Credit balance is too low","failed":true}'; `
	for title, row := range map[string]struct {
		profile, script string
		code            int
		summary         string
	}{
		"a failure that the agent reports":                        {"events", failed + "exit 0", exitFailure, "Credit balance is too low"},
		"a failure, and a code of the agent":                      {"events", failed + "exit 7", 7, "Credit balance is too low"},
		"a code without a word":                                   {"events", `exit 3`, 3, "the agent exited with code 3: it reported no reason"},
		"a code of git, which is that of no signal":               {"events", `exit 128`, exitFailure, "the agent exited with code 128: it reported no reason"},
		"a code with which a shell reports a signal":              {"events", `exit 139`, exitFailure, "the agent exited with code 139, as after signal 11 (SIGSEGV): it reported no reason"},
		"an agent that ends without a result is not successful":   {"events", `echo '{"type":"text","text":"I begin."}'`, exitFailure, "the agent exited with code 0, but did not report that it finished its work: I begin."},
		"a command that fails":                                    {"exec", `echo working; echo broken; exit 3`, 3, "the agent exited with code 3: broken"},
		"a command with more output than a status holds":          {"exec", `i=0; while [ $i -lt 1000 ]; do echo "working, step $i"; i=$((i+1)); done; echo broken; exit 3`, 3, "the agent exited with code 3: broken"},
		"an error after its last words":                           {"events", `echo '{"type":"text","text":"I begin."}'; echo "prompt is too long" >&2; exit 1`, 1, "the agent exited with code 1: prompt is too long"},
		"an error event":                                          {"events", `echo '{"type":"error","text":"401 Unauthorized"}'; exit 1`, 1, "the agent exited with code 1: 401 Unauthorized"},
		"requests that are repeated until it gives up":            {"events", `echo '{"type":"retry","text":"attempt 10 of 10, status 529"}'; exit 1`, 1, "the agent exited with code 1: attempt 10 of 10, status 529"},
		"a killed agent":                                          {"events", `kill -9 $$`, exitFailure, "the agent was ended by signal 9 (SIGKILL): it reported no reason"},
		"a signal without a name":                                 {"events", `kill -40 $$`, exitFailure, "the agent was ended by signal 40: it reported no reason"},
		"a crash of Go":                                           {"events", `printf 'panic: nil pointer\n\ngoroutine 1 [running]:\nmain.main()\n\t/src/main.go:5 +0x1d\n' >&2; exit 2`, 2, "the agent exited with code 2: panic: nil pointer"},
		"a crash of Node.js":                                      {"events", `printf '/app/cli.js:3\n  throw x;\n\nTypeError: x is not a function\n    at Object.<anonymous> (/app/cli.js:3)\n\nNode.js v24.1.0\n' >&2; exit 1`, 1, "the agent exited with code 1: TypeError: x is not a function"},
		"a crash of Python":                                       {"events", `printf 'Traceback (most recent call last):\n  File "a.py", line 1\nValueError: no such model\n' >&2; exit 1`, 1, "the agent exited with code 1: ValueError: no such model"},
		"a crash by a signal":                                     {"events", `echo "panic: nil pointer" >&2; kill -SEGV $$`, exitFailure, "the agent was ended by signal 11 (SIGSEGV): panic: nil pointer"},
		"a program that does not exist":                           {"exec", `echo "sh: node: not found" >&2; exit 127`, 127, "the agent exited with code 127: sh: node: not found"},
		"a result that is followed by a failure is not a success": {"events", finished + "exit 9", 9, "the agent exited with code 9: All done."},
	} {
		t.Run(title, func(t *testing.T) {
			s := newTestSession(t, "p")
			code, err := s.runWith(t.Context(), "--profile", row.profile, "--exit-delay", "1s", "--", "sh", "-c", row.script)
			require.True(t, code == row.code && err == nil, "code %d, want %d; error %v", code, row.code, err)
			require.Equal(t, row.summary, s.result().Summary)
		})
	}
}

// An agent that writes on has overcome its error.
func TestAnErrorThatTheAgentOvercameIsNotTheReasonOfItsEnd(t *testing.T) {
	start := time.Now()
	w := lastWords{}
	w.hear(&agentprofile.Event{Type: agentprofile.EventOutput, Text: "Error: the MCP server did not start"}, start)
	w.hear(&agentprofile.Event{Type: agentprofile.EventText, Text: "I continue."}, start.Add(errorAge))
	require.Equal(t, "Error: the MCP server did not start", w.reason())
	w.hear(&agentprofile.Event{Type: agentprofile.EventText, Text: "I give up."}, start.Add(2*errorAge))
	require.Equal(t, "I give up.", w.reason())
}

func TestAnAgentThatDoesNotExitAfterItsResultIsEnded(t *testing.T) {
	for title, row := range map[string]struct {
		profile, script string
		code            int
		summary         string
	}{
		"it hangs":                  {"events", finished + "sleep 1000", exitSuccess, "All done."},
		"it ignores SIGTERM":        {"events", "trap '' TERM\n" + finished + "sleep 1000 & wait; sleep 1000", exitSuccess, "All done."},
		"it reported a failure":     {"events", `echo '{"type":"result","text":"no credit","failed":true}'; sleep 1000`, exitFailure, "no credit"},
		"it writes a second time":   {"events", finished + "sleep 0.3; " + strings.ReplaceAll(finished, "All done.", "All of it."), exitSuccess, "All of it."},
		"it hangs without a result": {"events", `echo '{"type":"text","text":"I begin."}'; sleep 1.5; exit 3`, 3, "the agent exited with code 3: I begin."},
		"OpenCode, which writes no result": {"opencode", `echo '{"type":"step_start","sessionID":"s"}'
echo '{"type":"text","sessionID":"s","part":{"type":"text","text":"All done."}}'
echo '{"type":"step_finish","sessionID":"s","part":{"reason":"stop"}}'; sleep 1000`, exitSuccess, "All done."},
	} {
		t.Run(title, func(t *testing.T) {
			directory := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(directory, "opencode"), []byte("#!/bin/sh\n"+row.script), 0o700))
			t.Setenv("PATH", directory+":"+os.Getenv("PATH"))
			s := newTestSession(t, "p")
			code, err := s.runWith(t.Context(), "--profile", row.profile, "--grace-period", "100ms", "--exit-delay", "1s", "--", "sh", "-c", row.script)
			require.True(t, code == row.code && err == nil, "code %d, want %d; error %v: %s", code, row.code, err, s.out)
			require.Equal(t, row.summary, s.result().Summary)
		})
	}
}

func TestBrokenStreamsLeaveTheCostUnknown(t *testing.T) {
	const begin = `echo '{"type":"started","conversation":"c-1"}'; echo '{"type":"usage","usage":{"inputTokens":10,"outputTokens":5},"costUSD":0.25}'
`
	for title, script := range map[string]string{
		"interrupted in a line":   begin + `printf '{"type":"resu'; exit 1`,
		"malformed lines":         begin + `echo '{"type":'; echo nonsense; printf '\000\377\n'; echo '[]'; exit 1`,
		"without a result":        begin + `exit 0`,
		"an impossible cost":      begin + `echo '{"type":"usage","costUSD":-3}'; echo '{"type":"result","text":"done"}'`,
		"an agent that is killed": begin + `kill -9 $$`,
	} {
		t.Run(title, func(t *testing.T) {
			s := newTestSession(t, "p")
			_, _ = s.run("events", script)
			got := s.result()
			require.True(t, got.CostUSD == nil && strings.Contains(string(got.Usage.Raw), `"complete":false`) && got.SDKSessionID == "c-1",
				"result %+v, usage %s", got, got.Usage.Raw)
		})
	}
}

func TestMalformedAndLongLinesAreReportedInBoundedEvents(t *testing.T) {
	s := newTestSession(t, "p")
	s.mustRun("events", `head -c 3000000 /dev/zero | tr '\0' x; echo; echo not json
printf '{"type":"text","text":"'; head -c 200000 /dev/zero | tr '\0' y; echo '"}'
printf '{"type":"toolCall","tool":{"name":"write","input":{"content":"'; head -c 200000 /dev/zero | tr '\0' z; echo '"}}}'
`+finished)
	var types []agentprofile.EventType
	for _, event := range s.events() {
		types = append(types, event.Type)
		switch event.Type {
		case agentprofile.EventOutput:
			require.True(t, event.Omitted == 3000001 || event.Text == "not json", "event %+v", event)
		case agentprofile.EventText:
			require.True(t, len(event.Text) == maxTextBytes && event.Omitted == 200000-maxTextBytes,
				"text of %d bytes, %d omitted", len(event.Text), event.Omitted)
		case agentprofile.EventToolCall:
			require.True(t, len(event.Tool.Input) <= maxTextBytes+100 && event.Omitted != 0,
				"input of %d bytes, %d omitted", len(event.Tool.Input), event.Omitted)
		}
	}
	require.True(t, len(types) == 9, "events %v", types)
	for line := range strings.Lines(s.out.String()) {
		require.True(t, len(line) <= 2*maxTextBytes, "a line of %d bytes", len(line))
	}
}

func TestSecretsOfTheEnvironmentAreRedacted(t *testing.T) {
	t.Setenv("TEST_API_KEY", `sk-"secret"-1234`)
	t.Setenv("HTTPS_PROXY", "http://demo:token-of-the-session@proxy:3128")
	s := newTestSession(t, "p")
	s.mustRun("exec", `echo "my key is $TEST_API_KEY and $HTTPS_PROXY"; echo "again $TEST_API_KEY" >&2; echo $AGENTIC_LEASE$AGENTIC_RESULT_FILE`)
	got := s.out.String() + s.result().Summary
	require.True(t, !strings.Contains(got, "secret") && !strings.Contains(got, "token-of") && strings.Count(got, redactedText) == 7, "output %s", got)
}

// runUntilReady runs a session and calls a function when the agent has written that it is ready, maybe more than once.
func (s *testSession) runUntilReady(ctx context.Context, whenReady func(), args ...string) (int, error) {
	s.t.Helper()
	out := &watchingWriter{Buffer: s.out, whenReady: whenReady}
	return Run(ctx, args, func(name string) string { return s.environment[name] }, out, out)
}

type watchingWriter struct {
	*output.Buffer

	whenReady func()
}

func (w *watchingWriter) Write(p []byte) (int, error) {
	if strings.Contains(string(p), "ready") {
		w.whenReady()
	}
	return w.Buffer.Write(p)
}

func TestTerminationIsForwardedAndWaitedFor(t *testing.T) {
	for title, row := range map[string]struct {
		script string
		code   int
		saved  bool
	}{
		"an agent that saves its work":        {`trap 'touch saved; exit 1' TERM; echo '{"type":"text","text":"ready"}'; sleep 100 & wait`, exitTerminated, true},
		"an agent that finishes its work":     {`trap 'touch saved; ` + strings.ReplaceAll(strings.TrimSpace(finished), "'", `'"'"'`) + `; exit 0' TERM; echo '{"type":"text","text":"ready"}'; sleep 100 & wait`, exitSuccess, true},
		"an agent that ignores it is killed":  {`trap '' TERM; echo '{"type":"text","text":"ready"}'; sleep 100`, exitTerminated, false},
		"a process of its end is terminated":  {`trap 'sleep 10000 & touch saved; exit 1' TERM; echo '{"type":"text","text":"ready"}'; while :; do sleep 0.1; done`, exitTerminated, true},
		"child processes are terminated, too": {`sleep 100 & echo $! > child; trap 'touch saved; exit 0' TERM; echo '{"type":"text","text":"ready"}'; wait`, exitTerminated, true},
	} {
		t.Run(title, func(t *testing.T) {
			s := newTestSession(t, "p")
			if row.saved {
				s.grace = "10m"
			}
			started := time.Now()
			ctx, terminate := context.WithCancel(t.Context())
			defer terminate()
			code, err := s.runUntilReady(ctx, terminate, "--profile", "events", "--grace-period", s.grace, "--", "sh", "-c", row.script)
			require.True(t, code == row.code && err == nil, "code %d, error %v: %s", code, err, s.out)
			_, err = os.Stat(filepath.Join(s.environment["AGENTIC_WORKSPACE"], "saved"))
			require.True(t, (err == nil) == row.saved, "saved: %v; output %s", err, s.out)
			took := time.Since(started)
			require.True(t, took <= 5*time.Minute, "it took %v", took)
			s.result()
		})
	}
}

// An agent that waits for a child would exit as if it had not been terminated, if the child ended first.
func TestParentsAreTerminatedBeforeTheirChildren(t *testing.T) {
	const script = `sh -c "sh -c 'sleep 100 & wait' & wait" & wait`
	command := exec.CommandContext(t.Context(), "sh", "-c", script)
	require.NoError(t, command.Start())
	defer func() {
		endProcesses(nil, 0, false)
		_ = command.Wait() // it was killed
	}()
	var below []descendant
	poll.Until(t, "all processes to run", func() bool {
		below = processesBelow(nil, false)
		return len(below) == 4
	})
	ids := []int{os.Getpid()}
	for _, p := range below {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.id))
		require.NoError(t, err)
		require.True(t, strings.Contains(string(raw), fmt.Sprintf("\nPPid:\t%d\n", ids[len(ids)-1])),
			"process %d is not the child of %d", p.id, ids[len(ids)-1])
		ids = append(ids, p.id)
	}
}

// A process that the agent leaves behind does not keep the session from ending, and does not outlive it.
func TestProcessesThatTheAgentLeavesBehindAreEnded(t *testing.T) {
	for title, script := range map[string]string{
		"in its group":                        `sleep 100 & echo $! > child`,
		"in a session of its own":             `setsid sh -c 'echo $$ > child; exec sleep 100' & until test -s child; do sleep 0.01; done`,
		"whose parent has ended":              `(setsid sh -c 'sleep 100 & echo $! > child' &); until test -s child; do sleep 0.01; done`,
		"without an environment":              `env -i setsid sh -c 'echo $$ > child; exec sleep 100' & until test -s child; do sleep 0.01; done`,
		"which ignores SIGTERM":               `setsid sh -c 'trap "" TERM; echo $$ > child; sleep 100' & until test -s child; do sleep 0.01; done`,
		"which saves its work before it ends": `setsid sh -c 'trap "touch saved; exit" TERM; echo $$ > child; sleep 100 & wait' & until test -s child; do sleep 0.01; done`,
	} {
		t.Run(title, func(t *testing.T) {
			s := newTestSession(t, "p")
			if strings.Contains(title, "saves") {
				s.grace = "1m"
			}
			s.mustRun("events", finished+script)
			workspace := s.environment["AGENTIC_WORKSPACE"]
			raw, err := os.ReadFile(filepath.Join(workspace, "child"))
			require.NoError(t, err)
			process := strings.TrimSpace(string(raw))
			stat, err := os.ReadFile("/proc/" + process + "/stat")
			require.True(t, err != nil || strings.Contains(string(stat), ") Z "), "process %s still runs: %s", process, stat)
			_, err = os.Stat(filepath.Join(workspace, "saved"))
			require.True(t, !strings.Contains(title, "saves") || err == nil, "the work is not saved: %v", err)
		})
	}
}

// echoResume reports the arguments of the agent, and the conversation that it resumes.
const profileWithResume = `
name: test
parser: events
command: [sh, -c]
arguments: [["{arguments}"], [agent], [--resume, "{conversation}"]]
stdin: "{prompt}"
totals: process
`

func (s *testSession) runWithResume(script string) (int, error) {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "profile.yaml")
	writeTestFile(s.t, file, profileWithResume)
	return s.runWith(s.t.Context(), "--profile-file", file, "--", script)
}

const reportResume = `echo '{"type":"started","conversation":"c-'$AGENTIC_TEST'"}'; echo "{\"type\":\"result\",\"text\":\"resumed $2 with $(head -c 20)\"}"`

func TestConversationsAreResumed(t *testing.T) {
	t.Setenv("AGENTIC_TEST", "1")
	s := newTestSession(t, "Fix the bug.")
	check := func(title, want string) {
		t.Helper()
		code, err := s.runWithResume(reportResume)
		require.True(t, code == exitSuccess && err == nil, "%s: code %d, error %v: %s", title, code, err, s.out)
		got := s.result().Summary
		require.True(t, got == want, "%s: %q, want %q", title, got, want)
	}
	// An agent that is killed writes no result, so the runner remembers the conversation itself.
	code, err := s.runWithResume(`echo '{"type":"started","conversation":"c-1"}'; kill -9 $$`)
	require.True(t, code != exitSuccess && err == nil, "code %d, error %v", code, err)
	s.set(map[string]string{"AGENTIC_ATTEMPT": "2", "AGENTIC_JOB": "demo-r1-a2"})
	check("the next attempt", "resumed c-1 with The work was interru")
	s.set(map[string]string{"AGENTIC_RUN": "2", "AGENTIC_ATTEMPT": "1", "AGENTIC_SDK_SESSION_ID": "c-1"})
	check("the next run", "resumed c-1 with Fix the bug.")
	s.set(map[string]string{"AGENTIC_SESSION": "other", "AGENTIC_RUN": "1"})
	check("a session that continues this one", "resumed c-1 with Fix the bug.")
	s.set(map[string]string{"AGENTIC_SESSION": "third", "AGENTIC_SDK_SESSION_ID": "c-9"})
	check("a conversation that the workspace does not have", "resumed  with Fix the bug.")
	s.set(map[string]string{"AGENTIC_SESSION": "demo", "AGENTIC_WORKSPACE": t.TempDir()})
	check("an empty workspace", "resumed  with Fix the bug.")
	require.Contains(t, s.out.String(), "The conversation c-9 is not in the workspace; starting a new one")
}

func TestMalformedStateIsReportedAndNotUsed(t *testing.T) {
	s := newTestSession(t, "p")
	directory := filepath.Join(s.environment["AGENTIC_WORKSPACE"], stateDirectory)
	require.NoError(t, os.MkdirAll(directory, 0o700))
	for _, text := range []string{"{", `{"sessions": 7}`, strings.Repeat(" ", maxStateBytes+1)} {
		writeTestFile(t, filepath.Join(directory, stateFileName), text)
		s.mustRun("events", finished)
		require.True(t, strings.Contains(s.out.String(), "Reading the state of earlier attempts, which are not resumed"), "output %s", s.out)
	}
}

func TestInvalidUseIsReportedInTheResult(t *testing.T) {
	for want, args := range map[string][]string{
		"exactly one of --profile and --profile-file is required": {},
		`there is no profile "other"`:                             {"--profile", "other"},
		`has no permission mode "all"`:                            {"--profile", "codex", "--permission-mode", "all"},
		"profile exec has no command":                             {"--profile", "exec"},
		`"claude": executable file not found`:                     {"--profile", "claude-code"},
		"--profile-file: ":                                        {"--profile-file", "/does/not/exist"},
		"--system-prompt-file: ":                                  {"--profile", "exec", "--system-prompt-file", "/does/not/exist"},
		"--grace-period is 0s":                                    {"--profile", "exec", "--grace-period", "0s"},
	} {
		t.Run(want, func(t *testing.T) {
			s := newTestSession(t, "p")
			code, err := s.runWith(t.Context(), args...)
			require.True(t, code != exitSuccess, "the session is successful")
			text := ""
			if err != nil {
				text = err.Error()
				s.out = &output.Buffer{} // without the usage of the flags
			}
			for _, event := range s.events() {
				text += event.Text
			}
			require.True(t, strings.Contains(text, want), "output %s", text)
		})
	}
}

func TestMissingInputsAreNamed(t *testing.T) {
	for name := range newTestSession(t, "p").environment {
		if name == "AGENTIC_RESULT_MAX_BYTES" {
			continue // v0.1.0 does not set it
		}
		s := newTestSession(t, "p").set(map[string]string{name: ""})
		_, err := s.run("exec", "true")
		require.ErrorContains(t, err, name)
	}
	s := newTestSession(t, "p").setInputs(&sessions.RunnerInputs{Repos: []sessions.RunnerRepo{{Directory: "../outside"}}})
	_, err := s.run("exec", "true")
	require.True(t, err != nil, "a repository outside of the workspace is accepted")
}

func TestSignalsOfTheProcessEndTheSession(t *testing.T) {
	s := newTestSession(t, "p")
	// The result of the agent contains the text again. A second signal could arrive when nothing handles it any more.
	terminate := sync.OnceFunc(func() { _ = syscall.Kill(os.Getpid(), syscall.SIGTERM) })
	code, err := s.runUntilReady(t.Context(), terminate, "--profile", "exec", "--", "sh", "-c", "echo ready; sleep 100")
	require.True(t, code == exitTerminated && err == nil, "code %d, error %v", code, err)
}

func TestASessionThatIsTerminatedWhileItWaitsForItsRepositoriesHasNotFailed(t *testing.T) {
	s := newTestSession(t, "p").setRepository(&v1alpha1.SessionRepo{}).set(map[string]string{"AGENTIC_GIT": t.TempDir()}) // nobody clones
	ctx, terminate := context.WithCancel(t.Context())
	terminate()
	code, err := s.runWith(ctx, "--profile", "events", "--", "true")
	require.True(t, code == exitTerminated && err == nil, "code %d, error %v: %s", code, err, s.out)
}
