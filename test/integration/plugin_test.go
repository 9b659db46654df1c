package integration

import (
	"context"
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

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin"
	"github.com/yardmaster/yardmaster/test/output"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// apiServerProxy is a proxy between the plugin and the API server. It can simulate that the API
// server is unavailable, and it serves Pod logs, because no kubelet does in these tests.
type apiServerProxy struct {
	*httptest.Server

	isUnavailable atomic.Bool
	interrupted   sync.Map // Pods whose log was interrupted once
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
		if at := podLogPath.FindStringSubmatch(r.URL.Path); at != nil {
			p.serveLog(w, r, at[1], at[2])
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

var podLogPath = regexp.MustCompile(`^/api/v1/namespaces/([^/]+)/pods/([^/]+)/log$`)

// serveLog writes two lines for a container's start and one for its end. It interrupts a followed
// log once, after the first line.
func (p *apiServerProxy) serveLog(w http.ResponseWriter, r *http.Request, ns, name string) {
	pod := &corev1.Pod{}
	if err := cluster.Get(r.Context(), client.ObjectKey{Namespace: ns, Name: name}, pod); err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	step := pod.Labels[v1alpha1.LabelStep]
	line := func(at int, text string) {
		fmt.Fprintf(w, "2026-03-01T12:00:00.%09dZ %s %s\n", at, step, text)
		w.(http.Flusher).Flush()
	}
	follow := r.URL.Query().Get("follow") == "true"
	line(1, "starts")
	if _, again := p.interrupted.LoadOrStore(name, true); follow && !again {
		panic(http.ErrAbortHandler)
	}
	line(1, "starts at the same time")
	for follow && pod.Status.Phase == corev1.PodRunning && r.Context().Err() == nil {
		pause(r.Context())
		if err := cluster.Get(r.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
			return
		}
	}
	line(2, "ends")
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

func TestPluginListsSequencesWithASymbolForEachStep(t *testing.T) {
	t.Parallel()
	s := createSequence(t, testbuilder.SequentialJob("etl", "").Step("extract").Step("load").Finally("tidy").Obj())
	s.succeedStep("extract")
	s.endStep("load", 1, "")
	s.succeedStep("tidy")
	s.waitForPhase(v1alpha1.PhaseFailed)
	p := newAPIServerProxy(t)
	list := p.runSequenceCommand(t, s.sj.Namespace, "list")
	list.wantExitCode(0)
	wantTexts(t, list.out.String(), "NAME   STATUS   REASON                 STEPS", "etl    Failed   BackoffLimitExceeded   ✔✘|✔")
	everywhere := p.runSequenceCommand(t, "default", "list", "-A", "-o", "name", "-l", "no.such/label=x")
	everywhere.wantExitCode(0)
	if got := everywhere.out.String(); got != "" {
		t.Errorf("the selector matched %q", got)
	}
	asJSON := p.runSequenceCommand(t, s.sj.Namespace, "list", "-o", "json")
	asJSON.wantExitCode(0)
	wantTexts(t, asJSON.out.String(), `"kind": "SequentialJobList"`, `"kind": "SequentialJob"`)
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

func TestPluginWatchEndsWhenInterrupted(t *testing.T) {
	t.Parallel()
	s := createSequence(t, testbuilder.SequentialJob("etl", "").Step("extract").Obj())
	watch := newAPIServerProxy(t).runSequenceCommand(t, s.sj.Namespace, "watch")
	s.waitForPod("extract")
	watch.stop()
	watch.wantExitCode(130)
	if text := watch.errOut.String(); text != "" {
		t.Errorf("stderr: %s", text)
	}
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
