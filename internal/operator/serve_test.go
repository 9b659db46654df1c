package operator

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/internal/pod/listener"
	"github.com/yardmaster/yardmaster/test/background"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

func startTestServer(t *testing.T, handler http.Handler, connections listener.Limits, encryption *tls.Config) string {
	t.Helper()
	server, err := newServer("test", "127.0.0.1:0", handler, connections, encryption)
	require.NoError(t, err)
	background.Run(t, server.Start)
	return server.Listener.Addr().String()
}

func dialFrom(t *testing.T, host, address string) net.Conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}}
	c, err := dialer.DialContext(t.Context(), "tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func get(t *testing.T, client *http.Client, url string) (status int, err error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

func TestIdlePeersDoNotExcludeTheProbesOfTheKubelet(t *testing.T) {
	const connections = 8
	address := startTestServer(t, &newProbes().ready, listener.Limits{Total: connections, Unproven: connections}, nil)
	idle := make([]net.Conn, 5*connections)
	for i := range idle {
		idle[i] = dialFrom(t, "127.0.0.2", address)
	}
	if status, err := get(t, http.DefaultClient, "http://"+address+"/"); status != http.StatusOK {
		t.Errorf("status %d: %v", status, err)
	}
	for _, c := range idle[:len(idle)-connections] {
		require.NoError(t, c.SetReadDeadline(time.Now().Add(5*time.Minute)))
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("an idle connection beyond the limit is open: %v", err)
		}
	}
}

func TestPeersOfMetricsCannotUseHTTP2OrLongHeaders(t *testing.T) {
	encryption, err := selfSigned()
	require.NoError(t, err)
	address := startTestServer(t, http.NotFoundHandler(), listener.Limits{Total: 2, Unproven: 2}, encryption)
	config := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}
	if c, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", address); err == nil {
		_ = c.Close()
		t.Error("HTTP/2 is negotiated")
	}
	c, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(t.Context(), "tcp", address)
	require.NoError(t, err)
	defer c.Close()
	go func() {
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nX: "+strings.Repeat("x", 2*maxRequestHeader))
	}()
	response, _ := io.ReadAll(c)
	require.True(t, strings.HasPrefix(string(response), "HTTP/1.1 431"), "response to a long header: %q", response)
}

func TestRequestsBeyondTheLimitWaitAndThenFail(t *testing.T) {
	release := make(chan struct{})
	started := make(chan struct{}, 2)
	handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		started <- struct{}{}
		<-release
	})
	address := startTestServer(t, limitRequests(handler, 1, 100*time.Millisecond), listener.Limits{Total: 2, Unproven: 2}, nil)
	first := make(chan int, 1)
	go func() {
		status, _ := get(t, http.DefaultClient, "http://"+address)
		first <- status
	}()
	<-started
	if status, err := get(t, http.DefaultClient, "http://"+address); status != http.StatusServiceUnavailable {
		t.Errorf("the second request: status %d, %v", status, err)
	}
	close(release)
	require.Equal(t, http.StatusOK, <-first)
	poll.Until(t, "a request afterwards to succeed", func() bool { // the first may occupy its place for longer than its response needs
		status, err := get(t, http.DefaultClient, "http://"+address)
		return err == nil && status == http.StatusOK
	})
}

func TestConnectionsAreClosedAfterAResponseUnlessTheHandlerTrustsTheClient(t *testing.T) {
	for path, want := range map[string]string{"/": "one response", "/trusted": "two responses"} {
		t.Run(want, func(t *testing.T) {
			address := startTestServer(t, oneRequest(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/trusted" {
					w.Header().Del(connectionHeader)
				}
			})), listener.Limits{Total: 2, Unproven: 2}, nil)
			c := dialFrom(t, "127.0.0.1", address)
			_, _ = fmt.Fprintf(c, "GET %[1]s HTTP/1.1\r\nHost: x\r\n\r\nGET %[1]s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", path)
			received, _ := io.ReadAll(c)
			if responses := strings.Count(string(received), "HTTP/1.1 200"); (responses == 2) != (want == "two responses") {
				t.Errorf("%d responses", responses)
			}
		})
	}
}
