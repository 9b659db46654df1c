package workerclient

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/yardmaster/yardmaster/test/hostile"
	"github.com/yardmaster/yardmaster/test/poll"
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
	if err != nil {
		t.Fatal(err)
	}
	var connections sync.WaitGroup
	connections.Go(func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			connections.Go(func() {
				defer connection.Close()
				_, _ = connection.Read(make([]byte, 4096))
				respond(connection)
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		connections.Wait()
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
				if err == nil {
					t.Errorf("stats %+v were accepted", stats)
				}
				if allocated := after.TotalAlloc - before.TotalAlloc; allocated > maxAllocated {
					t.Errorf("%d bytes were allocated, want at most %d", allocated, maxAllocated)
				}
				if err != nil && len(err.Error()) > 1024 {
					t.Errorf("the error has %d bytes", len(err.Error()))
				}
				if duration > maxDuration {
					return fmt.Errorf("the request took %s", duration)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
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
		t.Run(title, func(t *testing.T) {
			if stats, err := New().FetchStats(t.Context(), startWorker(t, respondWith(response))); err == nil {
				t.Errorf("stats %+v were accepted", stats)
			}
		})
	}
}

func TestStatsOfOtherPoolsAreIgnored(t *testing.T) {
	address := startWorker(t, respondWith(
		`{"state":"Running","inFlight":1,"pool":"other","namespace":"kube-system","pod":"etcd-0","revision":"x","queues":[{"name":"theirs","prefetched":1000}]}`))
	stats, err := newPatientClient().FetchStats(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&Stats{State: "Running", InFlight: 1, Queues: make([]struct{}, 1)}, stats); diff != "" {
		t.Errorf("stats (-want +got):\n%s", diff)
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	var reached atomic.Int32
	target := startWorker(t, func(http.ResponseWriter, *http.Request) { reached.Add(1) })
	for _, status := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		address := startWorker(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "http://"+target, status) })
		if _, err := New().FetchStats(t.Context(), address); err == nil {
			t.Errorf("status %d was accepted", status)
		}
		if err := New().Drain(t.Context(), address, "token"); err == nil {
			t.Errorf("status %d was accepted as the response to a drain request", status)
		}
	}
	if reached.Load() != 0 {
		t.Errorf("%d requests were redirected", reached.Load())
	}
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
