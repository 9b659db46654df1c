package workercommand

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/yardmaster/yardmaster/worker"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func job() *worker.Job {
	return &worker.Job{
		ID: "7", Queue: "orders", Priority: "high", Payload: []byte("\x00payload"), Attempt: 2, MaxAttempts: 5, Sent: noon,
		Headers: map[string][]string{
			"Tenant": {"a", "b"}, "Content-Type": {"application/json"}, "Yardmaster-Job-Id": {"forged"}, "Authorization": {"forged"},
			"not a name": {"x"}, "Smuggled": {"a\r\nHost: b"},
		},
	}
}

// meaning of what a handler returns.
func meaning(err error) string {
	after, retry := worker.RetryAfter(err)
	putBack := worker.IsPutBack(err)
	switch {
	case err == nil:
		return "done"
	case worker.IsDeadLetter(err):
		return "dead: " + err.Error()
	case putBack:
		return "put back"
	case retry:
		return fmt.Sprintf("after %s", after)
	default:
		return "again: " + err.Error()
	}
}

func forward(t *testing.T, timeout time.Duration, server http.HandlerFunc) *forwarder {
	t.Helper()
	s := httptest.NewServer(server)
	t.Cleanup(s.Close)
	target, err := url.Parse(s.URL + "/jobs")
	if err != nil {
		t.Fatal(err)
	}
	return newForwarder(target, timeout)
}

func TestAnAnswerDecides(t *testing.T) {
	for name, row := range map[string]struct {
		status int
		header http.Header
		body   string
		want   string
	}{
		"200":                        {200, nil, "", "done"},
		"204":                        {204, nil, "", "done"},
		"429":                        {429, nil, "slow down", "again: answered 429 Too Many Requests slow down"},
		"429 with seconds":           {429, http.Header{"Retry-After": {"120"}}, "", "after 2m0s"},
		"503 with a date":            {503, http.Header{"Retry-After": {"Mon, 02 Jan 2006 15:04:05 GMT"}}, "", "after 0s"},
		"503 with more than a day":   {503, http.Header{"Retry-After": {"999999"}}, "", "after 24h0m0s"},
		"503 with what is neither":   {503, http.Header{"Retry-After": {"soon"}}, "", "again: answered 503 Service Unavailable"},
		"400":                        {400, nil, "no such order", "dead: answered 400 Bad Request no such order"},
		"404":                        {404, nil, "", "dead: answered 404 Not Found"},
		"500":                        {500, nil, "oh no", "again: answered 500 Internal Server Error oh no"},
		"a redirect is not followed": {302, http.Header{"Location": {"http://127.0.0.1:1/"}}, "", "again: answered 302 Found"},
		"a long answer is cut":       {400, nil, strings.Repeat("x", 9000), "dead: answered 400 Bad Request " + strings.Repeat("x", told)},
	} {
		t.Run(name, func(t *testing.T) {
			f := forward(t, time.Minute, func(answer http.ResponseWriter, _ *http.Request) {
				maps.Copy(answer.Header(), row.header)
				answer.WriteHeader(row.status)
				_, _ = io.WriteString(answer, row.body)
			})
			if got := meaning(f.handle(t.Context(), job())); got != row.want {
				t.Errorf("%s, want %s", got, row.want)
			}
		})
	}
}

func TestARequestTellsOfItsJobAndNothingForged(t *testing.T) {
	got := http.Header{}
	var body []byte
	f := forward(t, time.Minute, func(_ http.ResponseWriter, request *http.Request) {
		got = request.Header
		body, _ = io.ReadAll(request.Body)
	})
	if err := f.handle(t.Context(), job()); err != nil {
		t.Fatal(err)
	}
	want := http.Header{
		"Content-Type": {"application/json"}, "Content-Length": {"8"}, "User-Agent": {"Go-http-client/1.1"},
		"Yardmaster-Job-Id": {"7"}, "Yardmaster-Job-Queue": {"orders"}, "Yardmaster-Job-Priority": {"high"},
		"Yardmaster-Job-Attempt": {"2"}, "Yardmaster-Job-Max-Attempts": {"5"}, "Yardmaster-Job-Sent": {"2026-03-01T12:00:00Z"},
		"Yardmaster-Header-Tenant": {"a", "b"}, "Yardmaster-Header-Content-Type": {"application/json"},
		"Yardmaster-Header-Yardmaster-Job-Id": {"forged"}, "Yardmaster-Header-Authorization": {"forged"},
	}
	if diff := cmp.Diff(want, got); diff != "" || string(body) != "\x00payload" {
		t.Errorf("%q, headers (-want +got):\n%s", body, diff)
	}
}

func TestNoAnswer(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	slow := func(http.ResponseWriter, *http.Request) { <-release }

	t.Run("in time: it is tried again", func(t *testing.T) {
		s := httptest.NewServer(http.HandlerFunc(slow))
		target, err := url.Parse(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		if got := meaning(newForwarder(target, 50*time.Millisecond).handle(t.Context(), job())); !strings.HasPrefix(got, "again: ") {
			t.Error(got)
		}
	})
	t.Run("as nobody is there: that was no attempt", func(t *testing.T) {
		s := httptest.NewServer(http.NotFoundHandler())
		target, err := url.Parse(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
		if got := meaning(newForwarder(target, time.Minute).handle(t.Context(), job())); got != "put back" {
			t.Error(got)
		}
	})
	t.Run("before the worker has to end: it says so", func(t *testing.T) {
		s := httptest.NewServer(http.HandlerFunc(slow))
		target, err := url.Parse(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := newForwarder(target, time.Minute).handle(ctx, job()); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
