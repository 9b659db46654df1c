package integration

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/yardmaster/yardmaster/internal/plugin"
	"github.com/yardmaster/yardmaster/test/output"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// apiServerProxy is a proxy between the plugin and the API server. It can simulate that the API
// server is unavailable.
type apiServerProxy struct {
	*httptest.Server

	isUnavailable atomic.Bool
}

func newAPIServerProxy(t *testing.T) *apiServerProxy {
	t.Helper()
	target, err := url.Parse(config.Host)
	require.NoError(t, err)
	transport, err := rest.TransportFor(config)
	require.NoError(t, err)
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1,
	}
	p := &apiServerProxy{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.isUnavailable.Load() {
			http.Error(w, "the API server is unavailable", http.StatusServiceUnavailable)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		p.CloseClientConnections()
		p.Close()
	})
	return p
}

// writeKubeconfig returns a file that selects the namespace, through the proxy.
func (p *apiServerProxy) writeKubeconfig(t *testing.T, ns string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["proxy"] = &clientcmdapi.Cluster{Server: p.URL}
	kubeconfig.Contexts["proxy"] = &clientcmdapi.Context{Cluster: "proxy", Namespace: ns}
	kubeconfig.CurrentContext = "proxy"
	require.NoError(t, clientcmd.WriteToFile(*kubeconfig, path))
	return path
}

func TestPluginWatchContinuesWhenTheAPIServerIsAvailableAgain(t *testing.T) {
	t.Parallel()
	s := createSequence(t, testbuilder.SequentialJob("etl", "").Step("extract").Step("load").Obj())
	p := newAPIServerProxy(t)
	var out output.Buffer
	code := make(chan int, 1)
	arguments := []string{"seq", "watch", "etl", "--kubeconfig=" + p.writeKubeconfig(t, s.sj.Namespace)}
	go func() { code <- plugin.Run(t.Context(), arguments, &out, &out) }()
	waitForOutput := func(text string) {
		t.Helper()
		poll.Until(t, fmt.Sprintf("the plugin to print %q", text), func() bool { return strings.Contains(out.String(), text) })
	}
	s.succeedStep("extract")
	waitForOutput("step extract: Succeeded")
	p.isUnavailable.Store(true)
	p.CloseClientConnections()
	waitForOutput("connection lost")
	s.succeedStep("load")
	p.isUnavailable.Store(false)
	waitForOutput("connection restored")
	waitForOutput("Completed, 2/2 steps")
	if got := <-code; got != 0 {
		t.Errorf("exit code %d", got)
	}
}
