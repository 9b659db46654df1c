package workerclient

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/test/hostile"
	"github.com/yardmaster/yardmaster/test/poll"
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
			got := require.Call(newPatientClient().FetchStats(t.Context(), startWorker(t, respondWith(test.response)))).Succeeds(t)
			require.Equal(t, test.want, got)
			require.True(t, got.IsDraining() == test.draining && got.IsDrained() == test.drained, "draining %t, drained %t", got.IsDraining(), got.IsDrained())
		})
	}
}

func TestInvalidResponsesAreErrors(t *testing.T) {
	running := func(numbers string) http.HandlerFunc { return respondWith(`{"state":"Running",` + numbers + `}`) }
	for title, test := range map[string]struct {
		handle http.HandlerFunc
		want   string
	}{
		"not JSON":                   {respondWith("hello"), "invalid character"},
		"empty object":               {respondWith(`{}`), "reports no state"},
		"negative number":            {running(`"inFlight":-1`), "inFlight is -1"},
		"negative time":              {running(`"recent":{"count":1,"seconds":-1}`), "impossible recent attempts"},
		"too many returns":           {running(`"recent":{"count":1,"returned":2}`), "impossible recent attempts"},
		"endless response":           {respondWith(strings.Repeat(" ", maxResponseBytes+1)), "longer than 16384 bytes"},
		"error status":               {http.NotFound, "404 Not Found"},
		"response after the timeout": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "deadline exceeded"},

		"negative prefetched messages":  {running(`"prefetched":-9223372036854775808`), ""},
		"negative successes":            {running(`"succeeded":-1`), ""},
		"negative failures":             {running(`"failed":-1`), ""},
		"running jobs that overflow":    {running(`"inFlight":9223372036854775807`), ""},
		"successes that overflow a sum": {running(`"succeeded":9223372036854775807`), ""},
		"failures that overflow a sum":  {running(`"failed":9223372036854775807`), ""},
		"more than 64 bits":             {running(`"inFlight":1e400`), ""},
		"a fraction":                    {running(`"inFlight":0.5`), ""},
		"not a number":                  {running(`"inFlight":NaN`), ""},
		"infinity":                      {running(`"inFlight":Infinity`), ""},
		"a number as text":              {running(`"inFlight":"3"`), ""},
		"a list of numbers":             {running(`"inFlight":[3]`), ""},
		"two documents":                 {respondWith(`{"state":"Running","inFlight":1}{"state":"Drained"}`), ""},
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

const (
	// maxAllocated bounds the memory that one response can cost.
	maxAllocated = 1 << 20
	// maxDuration is longer than requestTimeout, for slow test machines.
	maxDuration = 5 * time.Second
)

// startRawWorker starts a server that sends each connection's bytes itself, after the request.
func startRawWorker(t *testing.T, respond hostile.Attack) (address string) {
	t.Helper()
	listener := require.Call((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")).Succeeds(t)
	t.Cleanup(func() { _ = listener.Close() })
	go hostile.Serve(listener, func(connection net.Conn) {
		hostile.AfterRequest(connection)
		respond(connection)
	})
	return listener.Addr().String()
}

func TestHostileResponsesAreBoundedInTimeAndMemory(t *testing.T) {
	for title, respond := range hostile.Workers() {
		t.Run(title, func(t *testing.T) {
			address := startRawWorker(t, respond)
			require.NoError(t, poll.UntilNil(t.Context(), func() error { // a busy machine can be late
				c := New()
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				startedAt := time.Now()
				stats, err := c.FetchStats(t.Context(), address)
				duration := time.Since(startedAt)
				runtime.ReadMemStats(&after)
				allocated := after.TotalAlloc - before.TotalAlloc
				require.True(t, err != nil && len(err.Error()) <= 1024, "stats %+v, error %v", stats, err)
				require.True(t, allocated <= maxAllocated, "%d bytes were allocated, want at most %d", allocated, maxAllocated)
				if duration > maxDuration {
					return fmt.Errorf("the request took %s", duration)
				}
				return nil
			}))
		})
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	var reached atomic.Int32
	target := startWorker(t, func(http.ResponseWriter, *http.Request) { reached.Add(1) })
	for _, status := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		address := startWorker(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "http://"+target, status) })
		_, err := New().FetchStats(t.Context(), address)
		require.ErrorContains(t, err, strconv.Itoa(status))
		require.True(t, New().Drain(t.Context(), address, "token") != nil, "status %d was accepted as the response to a drain request", status)
	}
	require.Equal(t, 0, reached.Load())
}

// The operator reconciles ten pools at the same time by default. Nine of them have workers that never answer.
func TestWorkersThatHangDoNotDelayThoseOfOtherPools(t *testing.T) {
	c := newPatientClient()
	hanging := startRawWorker(t, hostile.Send(""))
	healthy := startWorker(t, respondWith(`{"state":"Running"}`))
	var group sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer group.Wait()
	defer cancel()
	for range 9 * MaxConcurrentRequestsPerPool {
		group.Go(func() { _, _ = c.FetchStats(ctx, hanging) })
	}
	poll.Until(t, "all requests that hang to have a slot", func() bool { return len(c.requestSlots) == 9*MaxConcurrentRequestsPerPool })
	var answered sync.WaitGroup
	for range MaxConcurrentRequestsPerPool {
		answered.Go(func() {
			if _, err := c.FetchStats(t.Context(), healthy); err != nil {
				t.Error(err)
			}
		})
	}
	answered.Wait()
}
