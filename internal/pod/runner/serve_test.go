package runner

import (
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/ports"
)

// startInteractive starts an interactive session, and returns its URL and a function that ends it.
func (s *testSession) startInteractive(script string) (url string, end func() int) {
	s.t.Helper()
	address := ports.Reserve(s.t)
	s.set(map[string]string{"AGENTIC_PORT": strconv.Itoa(int(address.Port()))})
	ctx, cancel := context.WithCancel(s.t.Context())
	ended := make(chan int, 1)
	go func() {
		code, err := Run(ctx, []string{"--profile", "events", "--grace-period", "2s", "--", "sh", "-c", script},
			func(name string) string { return s.environment[name] }, s.out, s.out)
		if err != nil {
			s.t.Error(err)
		}
		ended <- code
	}()
	poll.Until(s.t, "the session to listen", func() bool {
		connection, err := net.Dial("tcp", address.String())
		if err == nil {
			connection.Close()
		}
		return err == nil
	})
	return "http://" + address.String(), func() int { cancel(); return <-ended }
}

func post(t *testing.T, url, message string) (status int, answer string) {
	t.Helper()
	response, err := http.Post(url+messagePath, "text/plain", strings.NewReader(message))
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

func TestInteractiveSessionAnswersMessagesWithEvents(t *testing.T) {
	s := newTestSession(t, "First.")
	url, end := s.startInteractive(`text=$(cat); echo '{"type":"started","conversation":"c-1"}'; echo '{"type":"usage","usage":{"inputTokens":1,"outputTokens":1},"costUSD":0.5}'
echo "{\"type\":\"result\",\"text\":\"answer to $text\"}"`)
	for _, message := range []string{"Second.", "Third."} {
		status, answer := post(t, url, message)
		if status != http.StatusOK || !strings.Contains(answer, `"type":"result","text":"answer to `+message+`"`) {
			t.Errorf("%s: status %d, answer %s", message, status, answer)
		}
	}
	for message, want := range map[string]int{"": http.StatusBadRequest, strings.Repeat("x", maxMessageBytes+1): http.StatusRequestEntityTooLarge} {
		if status, _ := post(t, url, message); status != want {
			t.Errorf("a message of %d bytes: status %d", len(message), status)
		}
	}
	if code := end(); code != exitTerminated {
		t.Errorf("code %d", code)
	}
	got := s.result()
	if got.Summary != "answer to Third." || *got.CostUSD != "1.5" || !strings.Contains(string(got.Usage.Raw), `"inputTokens":3`) {
		t.Errorf("result %+v, usage %s", got, got.Usage.Raw)
	}
}

func TestInteractiveSessionRunsOneTurnAtATime(t *testing.T) {
	s := newTestSession(t, "")
	url, end := s.startInteractive(`echo '{"type":"text","text":"ready"}'; trap 'exit 0' TERM; sleep 100 & wait`)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+messagePath, strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	first := make([]byte, 1)
	if _, err := io.ReadFull(response.Body, first); err != nil { // the agent has started
		t.Fatal(err)
	}
	if status, answer := post(t, url, "again"); status != http.StatusConflict {
		t.Errorf("status %d, answer %s", status, answer)
	}
	if code := end(); code != exitTerminated {
		t.Errorf("code %d", code)
	}
}
