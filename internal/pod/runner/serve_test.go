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
	"github.com/yardmaster/yardmaster/test/require"
)

func (s *testSession) startInteractive(script string) (url string, end func() int) {
	s.t.Helper()
	address := ports.Reserve(s.t)
	s.set(map[string]string{"AGENTIC_PORT": strconv.Itoa(int(address.Port()))})
	ctx, cancel := context.WithCancel(s.t.Context())
	ended := make(chan int, 1)
	go func() {
		code, err := s.runWith(ctx, "--profile", "events", "--grace-period", "2s", "--", "sh", "-c", script)
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
	require.NoError(t, err)
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(raw)
}

func TestInteractiveSessionAnswersMessagesWithEvents(t *testing.T) {
	s := newTestSession(t, "First.")
	url, end := s.startInteractive(`text=$(cat); echo '{"type":"started","conversation":"c-1"}'; echo '{"type":"usage","usage":{"inputTokens":1,"outputTokens":1},"costUSD":0.5}'
echo "{\"type\":\"result\",\"text\":\"answer to $text\"}"`)
	for _, message := range []string{"Second.", "Third."} {
		status, answer := post(t, url, message)
		require.True(t, status == http.StatusOK && strings.Contains(answer, `"type":"result","text":"answer to `+message+`"`),
			"%s: status %d, answer %s", message, status, answer)
	}
	for message, want := range map[string]int{"": http.StatusBadRequest, strings.Repeat("x", maxMessageBytes+1): http.StatusRequestEntityTooLarge} {
		status, _ := post(t, url, message)
		require.Equal(t, want, status)
	}
	require.Equal(t, exitTerminated, end())
	got := s.result()
	require.True(t, got.Summary == "answer to Third." && *got.CostUSD == "1.5" && strings.Contains(string(got.Usage.Raw), `"inputTokens":3`),
		"result %+v, usage %s", got, got.Usage.Raw)
}

func TestInteractiveSessionRunsOneTurnAtATime(t *testing.T) {
	s := newTestSession(t, "")
	url, end := s.startInteractive(`echo '{"type":"text","text":"ready"}'; trap 'exit 0' TERM; sleep 100 & wait`)
	response, err := http.Post(url+messagePath, "text/plain", strings.NewReader("hello"))
	require.NoError(t, err)
	defer response.Body.Close()
	_, err = io.ReadFull(response.Body, make([]byte, 1))
	require.NoError(t, err) // the agent has started
	status, answer := post(t, url, "again")
	require.True(t, status == http.StatusConflict, "status %d, answer %s", status, answer)
	require.Equal(t, exitTerminated, end())
}
