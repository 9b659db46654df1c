package workercommand

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/yardmaster/yardmaster/test/ports"
	"github.com/yardmaster/yardmaster/test/queuetest"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/worker"
)

var sentTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func newJob() *worker.Job {
	return &worker.Job{
		ID: "7", Kind: "bill", Queue: "orders", Priority: "high", Payload: []byte("\x00payload"), Attempt: 2, MaxAttempts: 5, SentTime: sentTime,
		Headers: map[string][]string{
			"Tenant": {"a", "b"}, "Content-Type": {"application/json"}, "Yardmaster-Job-Id": {"forged"}, "Authorization": {"forged"},
			"not a name": {"x"}, "Smuggled": {"a\r\nHost: b"},
		},
	}
}

// describeResult describes what the result of a handler does to its job.
func describeResult(err error) string {
	after, retry := worker.RetryAfter(err)
	switch {
	case err == nil:
		return "done"
	case worker.IsDeadLetter(err):
		return "dead: " + err.Error()
	case worker.IsSnooze(err):
		return "snoozed"
	case retry:
		return fmt.Sprintf("retry after %s", after)
	default:
		return "retry: " + err.Error()
	}
}

func forwardTo(t *testing.T, timeout time.Duration, server http.HandlerFunc) *forwarder {
	t.Helper()
	s := httptest.NewServer(server)
	t.Cleanup(s.Close)
	target, err := url.Parse(s.URL + "/jobs")
	require.NoError(t, err)
	return newForwarder(target, timeout)
}

func TestResponseDecidesWhatHappensToTheJob(t *testing.T) {
	for name, row := range map[string]struct {
		status int
		header http.Header
		body   string
		want   string
	}{
		"200":                        {200, nil, "", "done"},
		"204":                        {204, nil, "", "done"},
		"429":                        {429, nil, "slow down", "retry: the server responded 429 Too Many Requests slow down"},
		"429 with seconds":           {429, http.Header{"Retry-After": {"120"}}, "", "retry after 2m0s"},
		"503 with a date":            {503, http.Header{"Retry-After": {"Mon, 02 Jan 2006 15:04:05 GMT"}}, "", "retry after 0s"},
		"503 with more than a day":   {503, http.Header{"Retry-After": {"999999"}}, "", "retry after 24h0m0s"},
		"503 with an invalid value":  {503, http.Header{"Retry-After": {"soon"}}, "", "retry: the server responded 503 Service Unavailable"},
		"400":                        {400, nil, "no such order", "dead: the server responded 400 Bad Request no such order"},
		"404":                        {404, nil, "", "dead: the server responded 404 Not Found"},
		"500":                        {500, nil, "oh no", "retry: the server responded 500 Internal Server Error oh no"},
		"a redirect is not followed": {302, http.Header{"Location": {"http://127.0.0.1:1/"}}, "", "retry: the server responded 302 Found"},
		"a long body is truncated":   {400, nil, strings.Repeat("x", 9000), "dead: the server responded 400 Bad Request " + strings.Repeat("x", errorBodyBytes)},
	} {
		t.Run(name, func(t *testing.T) {
			f := forwardTo(t, time.Minute, func(response http.ResponseWriter, _ *http.Request) {
				maps.Copy(response.Header(), row.header)
				response.WriteHeader(row.status)
				_, _ = io.WriteString(response, row.body)
			})
			require.Equal(t, row.want, describeResult(f.handle(t.Context(), newJob())))
		})
	}
}

func TestRequestDescribesTheJobAndHeadersCannotBeForged(t *testing.T) {
	got := http.Header{}
	var body []byte
	f := forwardTo(t, time.Minute, func(_ http.ResponseWriter, request *http.Request) {
		got = request.Header
		body, _ = io.ReadAll(request.Body)
	})
	require.NoError(t, f.handle(t.Context(), newJob()))
	want := http.Header{
		"Content-Type": {"application/json"}, "Content-Length": {"8"}, "User-Agent": {"Go-http-client/1.1"},
		"Yardmaster-Job-Id": {"7"}, "Yardmaster-Job-Kind": {"bill"}, "Yardmaster-Job-Queue": {"orders"}, "Yardmaster-Job-Priority": {"high"},
		"Yardmaster-Job-Attempt": {"2"}, "Yardmaster-Job-Max-Attempts": {"5"}, "Yardmaster-Job-Sent": {"2026-03-01T12:00:00Z"},
		"Yardmaster-Header-Tenant": {"a", "b"}, "Yardmaster-Header-Content-Type": {"application/json"},
		"Yardmaster-Header-Yardmaster-Job-Id": {"forged"}, "Yardmaster-Header-Authorization": {"forged"},
	}
	if diff := cmp.Diff(want, got); diff != "" || string(body) != "\x00payload" {
		t.Errorf("body %q, headers (-want +got):\n%s", body, diff)
	}
}

func TestMissingResponse(t *testing.T) {
	slow := func(_ http.ResponseWriter, request *http.Request) {
		_, _ = io.Copy(io.Discard, request.Body) // so that the server notices the end of the connection
		<-request.Context().Done()
	}
	t.Run("a response after the timeout: the job is retried", func(t *testing.T) {
		got := describeResult(forwardTo(t, 50*time.Millisecond, slow).handle(t.Context(), newJob()))
		require.True(t, strings.HasPrefix(got, "retry: "), "%v", got)
	})
	t.Run("connection refused: the job is snoozed", func(t *testing.T) {
		target := &url.URL{Scheme: "http", Host: ports.Reserve(t).String()}
		require.Equal(t, "snoozed", describeResult(newForwarder(target, time.Minute).handle(t.Context(), newJob())))
	})
	t.Run("the worker shuts down: the error of the context is returned", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, forwardTo(t, time.Minute, slow).handle(ctx, newJob()), context.Canceled)
	})
}

// The application ends when it gets a certain job, and with it all requests that it has. It starts again each time.
func TestAJobThatEndsTheApplicationBecomesTheOnlyDeadLetter(t *testing.T) {
	t.Parallel()
	const number = 100
	q, address := queuetest.Start(t, "orders"), ports.Reserve(t).String()
	for i := range number {
		payload := "innocent"
		if i == number/2 {
			payload = "poison"
		}
		q.Send(payload)
	}
	var crashes atomic.Int64
	go func() {
		for t.Context().Err() == nil {
			server := &http.Server{Addr: address, ReadHeaderTimeout: time.Minute}
			server.Handler = http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
				if payload, err := io.ReadAll(request.Body); err != nil || string(payload) == "poison" {
					crashes.Add(1)
					_ = server.Close()
				}
				time.Sleep(20 * time.Millisecond)
			})
			stop := context.AfterFunc(t.Context(), func() { _ = server.Close() })
			_ = server.ListenAndServe()
			stop()
		}
	}()
	stop := runCommand(t, q, io.Discard, "--forward", "http://"+address)
	q.WaitUntilEmpty()
	stop()
	letters := q.DeadLetters()
	if len(letters) != 1 || string(letters[0].Payload) != "poison" || letters[0].Attempts != 5 || crashes.Load() != 5 {
		t.Errorf("%d crashes, dead letters %+v", crashes.Load(), letters)
	}
}
