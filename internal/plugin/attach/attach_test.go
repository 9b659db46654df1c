package attach

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/yardmaster/yardmaster/internal/plugin/render"
	"github.com/yardmaster/yardmaster/internal/pod/runner"
	"github.com/yardmaster/yardmaster/test/output"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/ports"
	"github.com/yardmaster/yardmaster/test/require"
)

// runnerVariable makes this program a session-runner, whose agent is a script.
const runnerVariable = "TEST_RUNS_SESSION"

func TestMain(m *testing.M) {
	if script := os.Getenv(runnerVariable); script != "" {
		code, err := runner.Run(context.Background(), []string{"--profile", "events", "--grace-period", "2s", "--", "sh", "-c", script},
			os.Getenv, os.Stdout, os.Stderr)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// startSession starts a process of session-runner, and returns the URL for messages.
func startSession(t *testing.T, script string) string {
	address := ports.Reserve(t)
	directory := t.TempDir()
	for name, text := range map[string]string{"prompt": "", "session.json": "{}", "result": ""} {
		require.NoError(t, os.WriteFile(filepath.Join(directory, name), []byte(text), 0o600))
	}
	self, err := os.Executable()
	require.NoError(t, err)
	command := exec.Command(self)
	command.Env = append(os.Environ(), runnerVariable+"="+script, "HOME="+t.TempDir(),
		"AGENTIC_SESSION=pair", "AGENTIC_NAMESPACE=a", "AGENTIC_JOB=pair-r1-a1", "AGENTIC_RUN=1", "AGENTIC_ATTEMPT=1", fmt.Sprint("AGENTIC_PORT=", address.Port()),
		"AGENTIC_PROMPT_FILE="+directory+"/prompt", "AGENTIC_SESSION_FILE="+directory+"/session.json", "AGENTIC_RESULT_FILE="+directory+"/result",
		"AGENTIC_WORKSPACE="+t.TempDir())
	require.NoError(t, command.Start())
	t.Cleanup(func() { _ = command.Process.Signal(syscall.SIGTERM); _ = command.Wait() })
	poll.Until(t, "the session to listen", func() bool {
		connection, err := net.Dial("tcp", address.String())
		if err == nil {
			connection.Close()
		}
		return err == nil
	})
	return "http://" + address.String() + "/messages"
}

type screen struct{ output.Buffer }

func (s *screen) waitFor(t *testing.T, text string) {
	t.Helper()
	err := poll.UntilNil(t.Context(), func() error {
		if !strings.Contains(s.String(), text) {
			return fmt.Errorf("no %q in %s", text, s)
		}
		return nil
	})
	require.NoError(t, err)
}

func newSession(url string, in io.Reader) (s *Session, output *screen) {
	output = &screen{}
	return &Session{URL: url, Name: "pair", In: in, Out: output, ErrOut: output, Render: (&render.SessionEvents{}).Lines}, output
}

// echo is an agent that repeats its prompt.
const echo = `text=$(cat); printf '{"type":"started","conversation":"c-1"}\n{"type":"text","text":"You said %s"}\n{"type":"result","text":"x"}\n' "$text"`

func TestEachLineIsAMessageInTheSameSession(t *testing.T) {
	s, output := newSession(startSession(t, echo), strings.NewReader("First.\n\n  \nSecond."))
	require.NoError(t, s.Talk(t.Context()))
	got := output.String()
	require.True(t, strings.Contains(got, "You said First.\nfinished\n> > > ") && strings.Contains(got, "You said Second.\nfinished\n> \n"),
		"output %s", got)
}

func TestScriptsSendTheirWholeInputAndGetTheOutcome(t *testing.T) {
	url := startSession(t, `read -r first; read -r second; echo "{\"type\":\"text\",\"text\":\"$first+$second\"}"; test "$second" = fail || echo '{"type":"result","text":"x"}'`)
	for in, want := range map[string]error{"a\nb\n": nil, "a\nfail\n": ErrFailed} {
		s, output := newSession(url, strings.NewReader(in))
		err := s.SendAll(t.Context())
		require.True(t, errors.Is(err, want) && strings.Contains(output.String(), "a+"+strings.Split(in, "\n")[1]), "%q: %v, %s", in, err, output)
	}
	for in, want := range map[string]string{"": "400 Bad Request: the message is empty", strings.Repeat("x", maxMessageBytes+1): "more than 65536 bytes"} {
		s, output := newSession(url, strings.NewReader(in))
		err := s.SendAll(t.Context())
		require.True(t, err != nil && strings.Contains(err.Error(), want), "a message of %d bytes: error %v, output %s", len(in), err, output)
	}
}

// Ctrl-C must not end the work, and the next message is refused until it has ended.
func TestAnInterruptEndsTheDisplayAndTheAgentContinues(t *testing.T) {
	directory := t.TempDir()
	in, keyboard := io.Pipe()
	s, output := newSession(startSession(t, `text=$(cat); echo "{\"type\":\"text\",\"text\":\"begin $text\"}"
test "$text" = quick || until test -e `+directory+`/go; do sleep 0.01; done; touch `+directory+`/"$text"; echo '{"type":"result","text":"x"}'`), in)
	interrupts := make(chan os.Signal, 1)
	s.Interrupts = interrupts
	ended := make(chan error, 1)
	go func() { ended <- s.Talk(t.Context()) }()
	fmt.Fprintln(keyboard, "slow")
	output.waitFor(t, "begin slow")
	interrupts <- os.Interrupt
	output.waitFor(t, "The agent continues: kubectl yardmaster session logs pair -f")
	fmt.Fprintln(keyboard, "refused")
	output.waitFor(t, "error: the session answered 409 Conflict: the agent works on another message")
	require.NoError(t, os.WriteFile(directory+"/go", nil, 0o600))
	poll.Until(t, "the work to be completed", func() bool {
		_, err := os.Stat(directory + "/slow")
		return err == nil
	})
	poll.Until(t, "the turn to end", func() bool {
		before := output.String()
		fmt.Fprintln(keyboard, "quick")
		poll.Until(t, "the next prompt", func() bool { return output.String() != before && strings.HasSuffix(output.String(), prompt) })
		return strings.Contains(output.String(), "begin quick")
	})
	keyboard.Close()
	require.NoError(t, <-ended)
	require.True(t, !strings.Contains(output.String(), "begin refused"), "output %s", output)
}

func TestALostSessionEndsTheConversationWithAnError(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, `{"type":"text","text":"begin"}`)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	defer server.Close()
	s, output := newSession(server.URL, strings.NewReader("First.\nSecond.\n"))
	if err := s.Talk(t.Context()); err == nil || !strings.Contains(err.Error(), "on which the agent may continue to work") || strings.Count(output.String(), "begin") != 1 {
		t.Errorf("error %v, output %s", err, output)
	}
}

func TestControlCharactersOfErrorsAreReplaced(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no \x1b[31mway", http.StatusTeapot) }))
	defer server.Close()
	s, _ := newSession(server.URL, strings.NewReader("a"))
	err := s.SendAll(t.Context())
	require.True(t, err != nil && !strings.Contains(err.Error(), "\x1b"), "error %q", err)
}
