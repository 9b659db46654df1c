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
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
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

func TestPluginWatchEndsWithTheRun(t *testing.T) {
	t.Parallel()
	s := createSequence(t, testbuilder.SequentialJob("etl", "").Step("extract").Step("load").Obj())
	p := newAPIServerProxy(t)
	watch := p.runSequenceCommand(t, s.sj.Namespace, "watch", "etl")
	everything := p.runSequenceCommand(t, s.sj.Namespace, "watch", "--until-finished")
	s.succeedStep("extract")
	watch.waitForOutput("step extract: Succeeded")
	s.endStep("load", 7, "disk full")
	watch.wantExitCode(1)
	wantTexts(t, watch.out.String(), "step load: Failed: BackoffLimitExceeded: container load exited with code 7: disk full", "Failed, 1/2 steps")
	everything.wantExitCode(1)
	wantTexts(t, everything.out.String(), "etl step extract: Succeeded", "etl Failed, 1/2 steps")
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

func TestPluginWatchReportsADeletedSequence(t *testing.T) {
	t.Parallel()
	s := createSequence(t, testbuilder.SequentialJob("etl", "").Step("extract").Obj())
	watch := newAPIServerProxy(t).runSequenceCommand(t, s.sj.Namespace, "watch", "etl")
	s.waitForPod("extract")
	watch.waitForOutput("step extract")
	s.deleteSequence()
	watch.wantExitCode(2)
	wantTexts(t, watch.errOut.String(), "error: sequentialjob.yardmaster.dev/etl was deleted")
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

func TestPluginSuspendsAndResumes(t *testing.T) {
	t.Parallel()
	s := createSequence(t, testbuilder.SequentialJob("etl", "").Step("extract").Step("load").Obj())
	p := newAPIServerProxy(t)
	s.waitForPod("extract")
	p.runSequenceCommand(t, s.sj.Namespace, "suspend", "etl").wantExitCode(0)
	again := p.runSequenceCommand(t, s.sj.Namespace, "suspend", "no-such", "etl")
	again.wantExitCode(2)
	wantTexts(t, again.out.String(), "sequentialjob.yardmaster.dev/etl is already suspended")
	wantTexts(t, again.errOut.String(), `error: sequentialjobs.yardmaster.dev "no-such" not found`)
	s.succeedStep("extract")
	s.waitForPhase(v1alpha1.PhaseSuspended)
	p.runSequenceCommand(t, s.sj.Namespace, "resume", "etl").wantExitCode(0)
	s.succeedStep("load")
	s.waitForPhase(v1alpha1.PhaseCompleted)
}

func TestPluginFollowsTheLogsOfStepsInOrder(t *testing.T) {
	t.Parallel()
	s := createSequence(t, testbuilder.SequentialJob("etl", "").Step("extract").Step("load").Obj())
	p := newAPIServerProxy(t)
	follow := p.runSequenceCommand(t, s.sj.Namespace, "logs", "etl", "--follow")
	s.waitForPod("extract")
	follow.waitForOutput("extract | extract starts")
	s.succeedStep("extract")
	s.succeedStep("load")
	s.waitForPhase(v1alpha1.PhaseCompleted)
	follow.wantExitCode(0)
	want := []string{
		"extract | extract starts", "extract | extract ends", "load | load starts", "load | load ends",
	}
	got := strings.Split(strings.TrimSpace(follow.out.String()), "\n")
	if diff := cmp.Diff(want, slices.DeleteFunc(got, func(line string) bool { return strings.HasSuffix(line, "same time") })); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	wantTexts(t, follow.errOut.String(), "retrying")
}

func TestPluginPrintsExistingLogsAndReportsMissingOnes(t *testing.T) {
	t.Parallel()
	s := createSequence(t, testbuilder.SequentialJob("etl", "").Step("extract").Step("load").Obj())
	p := newAPIServerProxy(t)
	extract := s.waitForPod("extract")
	s.succeedStep("extract")
	s.succeedStep("load")
	s.waitForPhase(v1alpha1.PhaseCompleted)
	if err := cluster.Delete(t.Context(), extract, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	s.waitUntilDeleted(extract)
	logs := p.runSequenceCommand(t, s.sj.Namespace, "logs", "etl", "--timestamps")
	logs.wantExitCode(0)
	want := `load | 2026-03-01T12:00:00.000000001Z load starts
load | 2026-03-01T12:00:00.000000001Z load starts at the same time
load | 2026-03-01T12:00:00.000000002Z load ends
`
	if diff := cmp.Diff(want, logs.out.String()); diff != "" {
		t.Errorf("logs (-want +got):\n%s", diff)
	}
	wantTexts(t, logs.errOut.String(), "step extract has no log: its Job "+s.stepStatus("extract").JobName+" no longer has a Pod")
}
