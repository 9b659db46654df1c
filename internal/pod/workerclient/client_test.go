package workerclient

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// startWorker starts an HTTP server in place of a worker.
func startWorker(t *testing.T, handle http.HandlerFunc) (address string) {
	t.Helper()
	server := httptest.NewServer(handle)
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// newPatientClient returns a client that leaves workers the time that they may need on a busy machine.
func newPatientClient() *Client {
	c := New()
	c.http.Timeout = 5 * time.Minute
	c.http.Transport.(*http.Transport).DialContext = (&net.Dialer{}).DialContext
	return c
}

func respondWith(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) }
}

func TestStatsAreParsed(t *testing.T) {
	tests := map[string]struct {
		response          string
		want              *Stats
		draining, drained bool
	}{
		"running": {`{"state":"Running","inFlight":3}`, &Stats{State: "Running", InFlight: 3}, false, false},
		"jobs that were given back": {
			`{"state":"Running","succeeded":5,"failed":1,"snoozed":7,"returned":2,"unavailable":"refused","breaker":"HalfOpen"}`,
			&Stats{State: "Running", Succeeded: new(int64(5)), Failed: new(int64(1)), Snoozed: new(int64(7)), Returned: 2, Unavailable: "refused", Breaker: "HalfOpen"}, false, false,
		},
		"attempts are counted": {`{"state":"Running","succeeded":5,"failed":1}`, &Stats{State: "Running", Succeeded: new(int64(5)), Failed: new(int64(1))}, false, false},
		"recent attempts": {
			`{"state":"Running","recent":{"count":2.5,"seconds":0.25,"returned":1}}`,
			&Stats{State: "Running", Recent: &RecentAttempts{Count: 2.5, Seconds: 0.25, Returned: 1}}, false, false,
		},
		"prefetched messages":   {`{"state":"Running","inFlight":3,"prefetched":2}`, &Stats{State: "Running", InFlight: 3, Prefetched: 2}, false, false},
		"draining":              {`{"state":"Draining","inFlight":1}`, &Stats{State: "Draining", InFlight: 1}, true, false},
		"drained":               {`{"state":"Drained"}`, &Stats{State: "Drained"}, true, true},
		"drained but in flight": {`{"state":"Drained","inFlight":1}`, &Stats{State: "Drained", InFlight: 1}, true, false},
		"unknown fields":        {`{"state":"Running","color":"green"}`, &Stats{State: "Running"}, false, false},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			got, err := newPatientClient().FetchStats(t.Context(), startWorker(t, respondWith(test.response)))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("stats (-want +got):\n%s", diff)
			}
			if got.IsDraining() != test.draining || got.IsDrained() != test.drained {
				t.Errorf("draining %t, drained %t", got.IsDraining(), got.IsDrained())
			}
		})
	}
}

func TestInvalidResponsesAreErrors(t *testing.T) {
	tests := map[string]struct {
		handle http.HandlerFunc
		want   string
	}{
		"not JSON":         {respondWith("hello"), "invalid character"},
		"empty object":     {respondWith(`{}`), "reports no state"},
		"negative number":  {respondWith(`{"state":"Running","inFlight":-1}`), "inFlight is -1"},
		"negative time":    {respondWith(`{"state":"Running","recent":{"count":1,"seconds":-1}}`), "impossible recent attempts"},
		"too many returns": {respondWith(`{"state":"Running","recent":{"count":1,"returned":2}}`), "impossible recent attempts"},
		"endless response": {respondWith(strings.Repeat(" ", maxResponseBytes+1)), "longer than 16384 bytes"},
		"error status":     {http.NotFound, "404 Not Found"},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
		}, "302 Found"},
		"response after the timeout": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "deadline exceeded"},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			c := newPatientClient()
			if test.want == "deadline exceeded" {
				c = New()
			}
			_, err := c.FetchStats(t.Context(), startWorker(t, test.handle))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error is %v, want one with %q", err, test.want)
			}
		})
	}
}

func TestDrainAndResumeSendPostRequestsWithAToken(t *testing.T) {
	var got []string
	address := startWorker(t, func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Method+" "+r.URL.Path+" "+r.Header.Get("Authorization"))
		w.WriteHeader(http.StatusAccepted)
	})
	c := newPatientClient()
	if err := c.Drain(t.Context(), address, "token"); err != nil {
		t.Error(err)
	}
	if err := c.Resume(t.Context(), address, "token"); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"POST /drain Bearer token", "POST /resume Bearer token"}, got); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestWaitingForASlotEndsWithTheContext(t *testing.T) {
	c := New()
	for range maxConcurrentRequests {
		c.requestSlots <- struct{}{}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := c.FetchStats(ctx, "127.0.0.1:1"); err != context.DeadlineExceeded { //nolint:errorlint // the error must not be wrapped
		t.Errorf("the error is %v", err)
	}
}
