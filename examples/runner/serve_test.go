package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// startServing starts an interactive session. It returns its URL and the error with which it ends.
func startServing(t *testing.T) (url string, stop context.CancelFunc, end <-chan error) {
	t.Helper()
	a, _ := newTestAgent(t, map[string]string{"AGENTIC_PORT": "8080"})
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.serveMessages(ctx, listener) }()
	return "http://" + listener.Addr().String(), stop, ended
}

func postMessage(t *testing.T, url, text string) (status int, answer string) {
	t.Helper()
	response, err := http.Post(url, "text/plain", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(raw)
}

func TestMessagesAreAnswered(t *testing.T) {
	url, stop, end := startServing(t)
	for text, want := range map[string]string{
		"hello\nthere":    "hello\nthere\n",
		"/dance\nhello":   "error: unknown command /dance\nhello\n",
		"/done":           "error: /done: the session has no Lease; set activityLease in its SessionRunner\n",
		"/write f x\ndid": "did\n",
		"":                "",
	} {
		if status, answer := postMessage(t, url, text); status != http.StatusOK || answer != want {
			t.Errorf("the answer to %q is %d %q, want %q", text, status, answer, want)
		}
	}
	if status, _ := postMessage(t, url, strings.Repeat("x", maxMessageBytes+1)); status != http.StatusBadRequest {
		t.Errorf("the answer to a message above the limit is %d", status)
	}
	stop()
	if err := <-end; !errors.Is(err, context.Canceled) {
		t.Errorf("the session ended with %v", err)
	}
}

func TestExitMessageEndsTheSession(t *testing.T) {
	url, _, end := startServing(t)
	if status, answer := postMessage(t, url, "bye\n/fail 4\nnever"); status != http.StatusOK || answer != "bye\n" {
		t.Errorf("the answer is %d %q", status, answer)
	}
	var code exitCodeError
	if err := <-end; !errors.As(err, &code) || code != 4 {
		t.Errorf("the session ended with %v", err)
	}
}

func TestPortInUseIsAnError(t *testing.T) {
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, port, _ := net.SplitHostPort(taken.Addr().String())
	code, err := runAndWriteResult(t.Context(), newSessionFiles(t, "one", map[string]string{"AGENTIC_PORT": port}), io.Discard)
	if code != exitFailure || err == nil {
		t.Errorf("code %d, error %v", code, err)
	}
}
