package ui

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
)

// apiServerProxy is a proxy between the plugin and the API server. It can simulate that the API server is unavailable, and
// serves the logs of Pods, because no kubelet does in these tests.
type apiServerProxy struct {
	*httptest.Server

	isUnavailable atomic.Bool
	// answer answers a request instead of the API server, and reports whether it did. Nil answers none.
	answer func(w http.ResponseWriter, r *http.Request) bool

	mu sync.Mutex
	// logLines are sent to each follower of a log; more come with addLogLine. Events of agents are in the logs of sessions only.
	logLines []string
	more     chan struct{}
}

var podLogPath = regexp.MustCompile(`^/api/v1/namespaces/[^/]+/pods/[^/]+/log$`)

func newAPIServerProxy(t *testing.T) *apiServerProxy {
	t.Helper()
	target, err := url.Parse(config.Host)
	require.NoError(t, err)
	transport, err := rest.TransportFor(config)
	require.NoError(t, err)
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: transport, FlushInterval: -1}
	p := &apiServerProxy{more: make(chan struct{})}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case p.isUnavailable.Load():
			http.Error(w, "the API server is unavailable", http.StatusServiceUnavailable)
		case p.answer != nil && p.answer(w, r):
		case podLogPath.MatchString(r.URL.Path):
			p.serveLog(w, r)
		default:
			proxy.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() {
		p.CloseClientConnections()
		p.Close()
	})
	return p
}

// interrupt makes the API server unavailable, and ends all watches.
func (p *apiServerProxy) interrupt() {
	p.isUnavailable.Store(true)
	p.CloseClientConnections()
}

func (p *apiServerProxy) addLogLine(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.logLines = append(p.logLines, line)
	close(p.more)
	p.more = make(chan struct{})
}

func (p *apiServerProxy) serveLog(w http.ResponseWriter, r *http.Request) {
	for next := 0; ; {
		p.mu.Lock()
		lines, more := p.logLines, p.more
		p.mu.Unlock()
		for ; next < len(lines); next++ {
			if isEvent := strings.HasPrefix(lines[next], "{"); isEvent != (r.URL.Query().Get("container") == v1alpha1.RunnerContainer) {
				continue
			}
			fmt.Fprintf(w, "2026-03-01T12:00:00.%09dZ %s\n", next+1, lines[next])
		}
		w.(http.Flusher).Flush()
		if r.URL.Query().Get("follow") == "" {
			return
		}
		select {
		case <-more:
		case <-r.Context().Done():
			return
		}
	}
}

func (p *apiServerProxy) writeKubeconfig(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	file := clientcmdapi.NewConfig()
	file.Clusters["test"] = &clientcmdapi.Cluster{Server: p.URL}
	file.Contexts["test"] = &clientcmdapi.Context{Cluster: "test"}
	file.CurrentContext = "test"
	require.NoError(t, clientcmd.WriteToFile(*file, path))
	return path
}
