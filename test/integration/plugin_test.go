package integration

import (
	"context"
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

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin"
	"github.com/yardmaster/yardmaster/test/output"
	"github.com/yardmaster/yardmaster/test/poll"
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
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
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

// pluginRun is a running plugin.
type pluginRun struct {
	t           *testing.T
	out, errOut output.Buffer
	stop        context.CancelFunc
	code        chan int
}

// runSequenceCommand starts `kubectl yardmaster seq` in the namespace, through the proxy.
func (p *apiServerProxy) runSequenceCommand(t *testing.T, ns string, args ...string) *pluginRun {
	t.Helper()
	return p.runPlugin(t, ns, append([]string{"seq"}, args...)...)
}

// runPlugin starts the plugin in the namespace, through the proxy.
func (p *apiServerProxy) runPlugin(t *testing.T, ns string, args ...string) *pluginRun {
	t.Helper()
	path := p.writeKubeconfig(t, ns)
	ctx, stop := context.WithCancel(t.Context())
	c := &pluginRun{t: t, stop: stop, code: make(chan int, 1)}
	go func() {
		c.code <- plugin.Run(ctx, append([]string{"--kubeconfig=" + path}, args...), &c.out, &c.errOut)
	}()
	return c
}

// writeKubeconfig returns a file that selects the namespace, through the proxy.
func (p *apiServerProxy) writeKubeconfig(t *testing.T, ns string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["proxy"] = &clientcmdapi.Cluster{Server: p.URL}
	kubeconfig.Contexts["proxy"] = &clientcmdapi.Context{Cluster: "proxy", Namespace: ns}
	kubeconfig.CurrentContext = "proxy"
	if err := clientcmd.WriteToFile(*kubeconfig, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// waitForOutput waits until standard output contains the text.
func (c *pluginRun) waitForOutput(text string) {
	c.t.Helper()
	poll.Until(c.t, fmt.Sprintf("the plugin to print %q", text), func() bool { return strings.Contains(c.out.String(), text) })
}

// exitCode waits until the plugin exits.
func (c *pluginRun) exitCode() (code int) {
	c.t.Helper()
	if err := poll.UntilNil(c.t.Context(), func() error {
		select {
		case code = <-c.code:
			return nil
		default:
			return fmt.Errorf("it has printed\n%s%s", c.out.String(), c.errOut.String())
		}
	}); err != nil {
		c.t.Fatalf("waiting for the plugin to exit: %v", err)
	}
	return code
}

// wantExitCode waits until the plugin exits and checks its exit code.
func (c *pluginRun) wantExitCode(code int) {
	c.t.Helper()
	if got := c.exitCode(); got != code {
		c.t.Fatalf("exit code %d, want %d\n%s%s", got, code, c.out.String(), c.errOut.String())
	}
}

// wantTexts checks that the output contains each text.
func wantTexts(t *testing.T, text string, wanted ...string) {
	t.Helper()
	for _, want := range wanted {
		if !strings.Contains(text, want) {
			t.Errorf("missing %q:\n%s", want, text)
		}
	}
}

func TestPluginWatchContinuesWhenTheAPIServerIsAvailableAgain(t *testing.T) {
	t.Parallel()
	s := createSequence(t, testbuilder.SequentialJob("etl", "").Step("extract").Step("load").Obj())
	p := newAPIServerProxy(t)
	watch := p.runSequenceCommand(t, s.sj.Namespace, "watch", "etl")
	s.succeedStep("extract")
	watch.waitForOutput("step extract: Succeeded")
	p.isUnavailable.Store(true)
	p.CloseClientConnections()
	watch.waitForOutput("connection lost")
	s.succeedStep("load")
	p.isUnavailable.Store(false)
	watch.wantExitCode(0)
	wantTexts(t, watch.out.String(), "connection restored", "Completed, 2/2 steps")
}

func TestPluginRerunsFromTheFailedStepAndWatches(t *testing.T) {
	t.Parallel()
	s := createSequence(t, testbuilder.SequentialJob("etl", "").Step("extract").Step("load").Obj())
	p := newAPIServerProxy(t)
	s.succeedStep("extract")
	early := p.runSequenceCommand(t, s.sj.Namespace, "rerun", "etl")
	early.wantExitCode(2)
	wantTexts(t, early.errOut.String(), "etl: cannot rerun: its run has not finished, it is Running")
	s.endStep("load", 1, "")
	s.waitForPhase(v1alpha1.PhaseFailed)
	unknown := p.runSequenceCommand(t, s.sj.Namespace, "rerun", "etl", "--from=transform")
	unknown.wantExitCode(2)
	wantTexts(t, unknown.errOut.String(), `cannot rerun from step "transform": no step without finally has this name`)

	rerun := p.runSequenceCommand(t, s.sj.Namespace, "rerun", "etl", "--watch")
	rerun.waitForOutput("step load")
	poll.Until(t, "the Job of the rerun", func() bool { return len(s.listJobs()) == 3 })
	s.succeedStep("load")
	rerun.wantExitCode(0)
	wantTexts(t, rerun.out.String(), "sequentialjob.yardmaster.dev/etl reruns from Failed: run 2, id ", "Completed, 2/2 steps")
	if s.readSequence().Status.Run != 2 || s.stepStatus("extract").Run != 1 {
		t.Errorf("%s", describe(s.sj))
	}
}
