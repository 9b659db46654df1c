package operator

import (
	"context"
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

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/yardmaster/yardmaster/internal/kube/informer"
	"github.com/yardmaster/yardmaster/internal/pod/listener"
	"github.com/yardmaster/yardmaster/test/background"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

func startTestServer(t *testing.T, handler http.Handler, connections listener.Limits, encryption *tls.Config) string {
	t.Helper()
	server := require.Call(newServer("test", "127.0.0.1:0", handler, connections, encryption)).Succeeds(t)
	background.Run(t, server.Start)
	return server.Listener.Addr().String()
}

func dialFrom(t *testing.T, host, address string) net.Conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}}
	c := require.Call(dialer.DialContext(t.Context(), "tcp", address)).Succeeds(t)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func get(t *testing.T, client *http.Client, url string) (status int, err error) {
	t.Helper()
	request := require.Call(http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)).Succeeds(t)
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
	require.Equal(t, http.StatusOK, require.Call(get(t, http.DefaultClient, "http://"+address+"/")).Succeeds(t))
	for _, c := range idle[:len(idle)-connections] {
		require.NoError(t, c.SetReadDeadline(time.Now().Add(5*time.Minute)))
		_, err := c.Read(make([]byte, 1))
		require.True(t, err != nil && !errors.Is(err, os.ErrDeadlineExceeded), "an idle connection beyond the limit is open: %v", err)
	}
}

func TestTheOperatorIsReadyOnlyIfItMayReadANamespace(t *testing.T) {
	address := startTestServer(t, &newProbes().ready, listener.Limits{Total: 8, Unproven: 8}, nil)
	refused := apierrors.NewForbidden(corev1.Resource("pods"), "", nil)
	pods := &cache.ListWatch{
		ListWithContextFunc:  func(context.Context, metav1.ListOptions) (runtime.Object, error) { return nil, refused },
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return nil, refused },
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go informer.NewInformer(pods, &corev1.Pod{}, 0, nil).RunWithContext(ctx)
	for _, want := range []int{http.StatusInternalServerError, http.StatusOK} {
		poll.Until(t, "the status "+http.StatusText(want), func() bool {
			return require.Call(get(t, http.DefaultClient, "http://"+address+"/")).Succeeds(t) == want
		})
		stop()
	}
}

func TestPeersOfMetricsCannotUseHTTP2OrLongHeaders(t *testing.T) {
	encryption := require.Call(selfSigned()).Succeeds(t)
	address := startTestServer(t, http.NotFoundHandler(), listener.Limits{Total: 2, Unproven: 2}, encryption)
	config := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}
	if c, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", address); err == nil {
		_ = c.Close()
		t.Error("HTTP/2 is negotiated")
	}
	c := require.Call((&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(t.Context(), "tcp", address)).Succeeds(t)
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
	require.Equal(t, http.StatusServiceUnavailable, require.Call(get(t, http.DefaultClient, "http://"+address)).Succeeds(t))
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
			responses := strings.Count(string(received), "HTTP/1.1 200")
			require.True(t, (responses == 2) == (want == "two responses"), "%d responses", responses)
		})
	}
}
