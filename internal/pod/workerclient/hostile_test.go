package workerclient

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/test/hostile"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

const (
	// maxAllocated bounds the memory that one response can cost.
	maxAllocated = 1 << 20
	// maxDuration is longer than requestTimeout, for slow test machines.
	maxDuration = 5 * time.Second
)

// startRawWorker starts a server that sends each connection's bytes itself, after the request.
func startRawWorker(t *testing.T, respond hostile.Attack) (address string) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
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
			err := poll.UntilNil(t.Context(), func() error { // a busy machine can be late
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
			})
			require.NoError(t, err)
		})
	}
}

func TestImpossibleNumbersAreErrors(t *testing.T) {
	for title, response := range map[string]string{
		"negative running jobs":         `{"state":"Running","inFlight":-1}`,
		"negative prefetched messages":  `{"state":"Running","prefetched":-9223372036854775808}`,
		"negative successes":            `{"state":"Running","succeeded":-1}`,
		"negative failures":             `{"state":"Running","failed":-1}`,
		"running jobs that overflow":    `{"state":"Running","inFlight":9223372036854775807}`,
		"successes that overflow a sum": `{"state":"Running","succeeded":9223372036854775807}`,
		"failures that overflow a sum":  `{"state":"Running","failed":9223372036854775807}`,
		"more than 64 bits":             `{"state":"Running","inFlight":1e400}`,
		"a fraction":                    `{"state":"Running","inFlight":0.5}`,
		"not a number":                  `{"state":"Running","inFlight":NaN}`,
		"infinity":                      `{"state":"Running","inFlight":Infinity}`,
		"a number as text":              `{"state":"Running","inFlight":"3"}`,
		"a list of numbers":             `{"state":"Running","inFlight":[3]}`,
		"two documents":                 `{"state":"Running","inFlight":1}{"state":"Drained"}`,
	} {
		stats, err := New().FetchStats(t.Context(), startWorker(t, respondWith(response)))
		require.True(t, err != nil, "%s: stats %+v were accepted", title, stats)
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

// The operator reconciles ten pools at the same time by default. Nine of them have workers that
// never answer.
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
