package workerclient

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/test/require"
)

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
	for title, test := range map[string]struct {
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
		"what is said of other pools": {
			`{"state":"Running","pool":"other","namespace":"kube-system","pod":"etcd-0","revision":"x","queues":[{"name":"theirs","prefetched":1000}]}`,
			&Stats{State: "Running", Queues: make([]struct{}, 1)}, false, false,
		},
	} {
		t.Run(title, func(t *testing.T) {
			got, err := newPatientClient().FetchStats(t.Context(), startWorker(t, respondWith(test.response)))
			require.NoError(t, err)
			require.Equal(t, test.want, got)
			require.True(t, got.IsDraining() == test.draining && got.IsDrained() == test.drained, "draining %t, drained %t", got.IsDraining(), got.IsDrained())
		})
	}
}

func TestInvalidResponsesAreErrors(t *testing.T) {
	for title, test := range map[string]struct {
		handle http.HandlerFunc
		want   string
	}{
		"not JSON":                   {respondWith("hello"), "invalid character"},
		"empty object":               {respondWith(`{}`), "reports no state"},
		"negative number":            {respondWith(`{"state":"Running","inFlight":-1}`), "inFlight is -1"},
		"negative time":              {respondWith(`{"state":"Running","recent":{"count":1,"seconds":-1}}`), "impossible recent attempts"},
		"too many returns":           {respondWith(`{"state":"Running","recent":{"count":1,"returned":2}}`), "impossible recent attempts"},
		"endless response":           {respondWith(strings.Repeat(" ", maxResponseBytes+1)), "longer than 16384 bytes"},
		"error status":               {http.NotFound, "404 Not Found"},
		"response after the timeout": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "deadline exceeded"},
	} {
		t.Run(title, func(t *testing.T) {
			c := newPatientClient()
			if test.want == "deadline exceeded" {
				c = New()
			}
			_, err := c.FetchStats(t.Context(), startWorker(t, test.handle))
			require.ErrorContains(t, err, test.want)
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
	require.NoError(t, c.Drain(t.Context(), address, "token"))
	require.NoError(t, c.Resume(t.Context(), address, "token"))
	require.Equal(t, []string{"POST /drain Bearer token", "POST /resume Bearer token"}, got)
}

func TestWaitingForASlotEndsWithTheContext(t *testing.T) {
	c := New()
	for range maxConcurrentRequests {
		c.requestSlots <- struct{}{}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err := c.FetchStats(ctx, "127.0.0.1:1")
	require.True(t, err == context.DeadlineExceeded, "the error is %v", err) //nolint:errorlint // the error must not be wrapped
}
