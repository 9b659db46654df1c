package workerclient

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const (
	// hugeResponse is the length of a response that would exceed the operator's memory.
	hugeResponse = 600 << 20
	// maxAllocated bounds the memory that one response can cost.
	maxAllocated = 1 << 20
	// maxDuration is longer than requestTimeout, for slow test machines.
	maxDuration = 5 * time.Second
)

// startRawWorker starts a server that sends each connection's bytes itself, after the request.
func startRawWorker(t *testing.T, respond func(io.Writer)) (address string) {
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

// repeat writes text until the client closes the connection, or the number of bytes is reached.
func repeat(w io.Writer, text string, bytes int) {
	chunk := []byte(strings.Repeat(text, max(1, 1<<16/len(text)))) // the test's own allocations count too
	for written := 0; written < bytes; written += len(chunk) {
		if _, err := w.Write(chunk); err != nil {
			return
		}
	}
}

// dribble writes the beginning, and then one byte at a time until the client closes the connection.
func dribble(w io.Writer, beginning string) {
	_, err := io.WriteString(w, beginning)
	for ticker := time.NewTicker(20 * time.Millisecond); err == nil; <-ticker.C {
		_, err = io.WriteString(w, " ")
	}
}

func TestHostileResponsesAreBoundedInTimeAndMemory(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	for title, respond := range map[string]func(io.Writer){
		"a body of 600 MB": func(w io.Writer) {
			fmt.Fprintf(w, ok+"Content-Length: %d\r\n\r\n", hugeResponse)
			repeat(w, " ", hugeResponse)
		},
		"an endless body in chunks": func(w io.Writer) {
			_, _ = io.WriteString(w, ok+"Transfer-Encoding: chunked\r\n\r\n")
			repeat(w, "1\r\n \r\n", hugeResponse)
		},
		"an endless chunk extension": func(w io.Writer) {
			_, _ = io.WriteString(w, ok+"Transfer-Encoding: chunked\r\n\r\n1;")
			repeat(w, "x", hugeResponse)
		},
		"endless trailers": func(w io.Writer) {
			_, _ = io.WriteString(w, ok+"Transfer-Encoding: chunked\r\n\r\n0\r\n")
			repeat(w, "A: b\r\n", hugeResponse)
		},
		"an endless header": func(w io.Writer) {
			_, _ = io.WriteString(w, ok)
			repeat(w, "A: b\r\n", hugeResponse)
		},
		"an endless status line":              func(w io.Writer) { repeat(w, "H", hugeResponse) },
		"endless informational responses":     func(w io.Writer) { repeat(w, "HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n", hugeResponse) },
		"a body that arrives byte by byte":    func(w io.Writer) { dribble(w, ok+"Content-Length: 10000\r\n\r\n") },
		"a header that arrives byte by byte":  func(w io.Writer) { dribble(w, ok+"A: ") },
		"no byte at all":                      func(w io.Writer) { dribble(w, "") },
		"deeply nested JSON":                  func(w io.Writer) { _, _ = io.WriteString(w, ok+"\r\n"+strings.Repeat("[", maxResponseBytes)) },
		"a compressed body that is not JSON":  func(w io.Writer) { _, _ = io.WriteString(w, ok+"Content-Encoding: gzip\r\n\r\n\x1f\x8b") },
		"another protocol":                    func(w io.Writer) { repeat(w, "SSH-2.0-OpenSSH\r\n", 100) },
		"a closed connection":                 func(io.Writer) {},
		"a body shorter than Content-Length":  func(w io.Writer) { _, _ = io.WriteString(w, ok+"Content-Length: 100\r\n\r\n{}") },
		"a switch to another protocol":        func(w io.Writer) { dribble(w, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n") },
		"two contradicting lengths of a body": func(w io.Writer) { _, _ = io.WriteString(w, ok+"Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}") },
	} {
		t.Run(title, func(t *testing.T) {
			address := startRawWorker(t, respond)
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
			if duration > maxDuration {
				t.Errorf("the request took %s", duration)
			}
			if allocated := after.TotalAlloc - before.TotalAlloc; allocated > maxAllocated {
				t.Errorf("%d bytes were allocated, want at most %d", allocated, maxAllocated)
			}
			if err != nil && len(err.Error()) > 1024 {
				t.Errorf("the error has %d bytes", len(err.Error()))
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
	stats, err := New().FetchStats(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&Stats{State: "Running", InFlight: 1}, stats); diff != "" {
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
		if err := New().Drain(t.Context(), address); err == nil {
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
	c := New()
	hanging := startRawWorker(t, func(w io.Writer) { dribble(w, "") })
	healthy := startWorker(t, respondWith(`{"state":"Running"}`))
	var group sync.WaitGroup
	for range 9 * MaxConcurrentRequestsPerPool {
		group.Go(func() { _, _ = c.FetchStats(t.Context(), hanging) })
	}
	for len(c.requestSlots) < 9*MaxConcurrentRequestsPerPool {
		runtime.Gosched()
	}
	for range MaxConcurrentRequestsPerPool {
		group.Go(func() {
			if _, err := c.FetchStats(t.Context(), healthy); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
}
