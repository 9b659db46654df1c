package testenv

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/yardmaster/yardmaster/test/require"
)

// StartProxy starts a proxy in front of the API server. It returns the path of a kubeconfig that selects the namespace through the
// proxy. handle gets each request, and what forwards it; change gets each response, unless it is nil.
func (c *Cluster) StartProxy(
	t testing.TB, namespace string, handle func(http.ResponseWriter, *http.Request, http.Handler), change func(*http.Response) error,
) (server *httptest.Server, kubeconfig string) {
	t.Helper()
	target, err := url.Parse(c.Config.Host)
	require.NoError(t, err)
	transport, err := rest.TransportFor(c.Config)
	require.NoError(t, err)
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: transport, FlushInterval: -1, ModifyResponse: change,
	}
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handle(w, r, proxy) }))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	config := clientcmdapi.NewConfig()
	config.Clusters["proxy"] = &clientcmdapi.Cluster{Server: server.URL}
	config.Contexts["proxy"] = &clientcmdapi.Context{Cluster: "proxy", Namespace: namespace}
	config.CurrentContext = "proxy"
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*config, kubeconfig))
	return server, kubeconfig
}
