package integration

import (
	"bytes"
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
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin"
	"github.com/yardmaster/yardmaster/internal/testbuilder"
)

// gate stands between the plugin and the API server. It can be shut, as if the API server
// were away, and has the logs that no kubelet of the simulated nodes has.
type gate struct {
	*httptest.Server

	shut   atomic.Bool
	broken sync.Map // Pods whose log has been broken off once
}

func newGate(t *testing.T) *gate {
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
	g := &gate{}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g.shut.Load() {
			http.Error(w, "the API server is away", http.StatusServiceUnavailable)
			return
		}
		if at := logPath.FindStringSubmatch(r.URL.Path); at != nil {
			g.log(w, r, at[1], at[2])
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		g.CloseClientConnections()
		g.Close()
	})
	return g
}

var logPath = regexp.MustCompile(`^/api/v1/namespaces/([^/]+)/pods/([^/]+)/log$`)

// log is two lines from a container's start and one from its end. Followed, it breaks off
// once after the first.
func (g *gate) log(w http.ResponseWriter, r *http.Request, ns, name string) {
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
	line(1, "begins")
	if _, again := g.broken.LoadOrStore(name, true); follow && !again {
		panic(http.ErrAbortHandler)
	}
	line(1, "begins in the same instant")
	for follow && pod.Status.Phase == corev1.PodRunning && r.Context().Err() == nil {
		pause(r.Context())
		if err := cluster.Get(r.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
			return
		}
	}
	line(2, "ends")
}

// call is the plugin at work.
type call struct {
	t           *testing.T
	out, errOut output
	stop        context.CancelFunc
	code        chan int
}

// output can be read while it is written.
type output struct {
	mutex sync.Mutex
	text  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.text.String()
}

// kubectl begins `kubectl yardmaster seq` in the namespace, through the gate.
func (g *gate) kubectl(t *testing.T, ns string, args ...string) *call {
	t.Helper()
	return g.plugin(t, ns, append([]string{"seq"}, args...)...)
}

// plugin begins the plugin in the namespace, through the gate.
func (g *gate) plugin(t *testing.T, ns string, args ...string) *call {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["gate"] = &clientcmdapi.Cluster{Server: g.URL}
	kubeconfig.Contexts["gate"] = &clientcmdapi.Context{Cluster: "gate", Namespace: ns}
	kubeconfig.CurrentContext = "gate"
	if err := clientcmd.WriteToFile(*kubeconfig, path); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	c := &call{t: t, stop: stop, code: make(chan int, 1)}
	go func() {
		c.code <- plugin.Run(ctx, append(args, "--kubeconfig="+path), &c.out, &c.errOut)
	}()
	return c
}

// until waits until the plugin has written that.
func (c *call) until(text string) {
	c.t.Helper()
	eventually(c.t, fmt.Sprintf("the plugin to say %q", text), func() bool { return strings.Contains(c.out.String(), text) })
}

// want waits for the plugin's end, and for the exit code.
func (c *call) want(code int) {
	c.t.Helper()
	select {
	case got := <-c.code:
		if got != code {
			c.t.Fatalf("exit code %d, want %d\n%s%s", got, code, c.out.String(), c.errOut.String())
		}
	case <-time.After(time.Minute):
		c.t.Fatalf("it does not end\n%s%s", c.out.String(), c.errOut.String())
	}
}

// wantSaid checks what stands in a text.
func wantSaid(t *testing.T, text string, wanted ...string) {
	t.Helper()
	for _, want := range wanted {
		if !strings.Contains(text, want) {
			t.Errorf("without %q:\n%s", want, text)
		}
	}
}

func TestPluginListsSequencesWithASignForEachStep(t *testing.T) {
	t.Parallel()
	s := tell(t, testbuilder.SequentialJob("etl", "").Step("extract").Step("load").Finally("tidy").Obj())
	s.succeed("extract")
	s.end("load", 1, "")
	s.succeed("tidy")
	s.untilPhase(v1alpha1.PhaseFailed)
	g := newGate(t)
	list := g.kubectl(t, s.sj.Namespace, "list")
	list.want(0)
	wantSaid(t, list.out.String(), "NAME   STATUS   STEPS", "etl    Failed   ✔✘|✔")
	everywhere := g.kubectl(t, "default", "list", "-A", "-o", "name", "-l", "no.such/label=x")
	everywhere.want(0)
	if got := everywhere.out.String(); got != "" {
		t.Errorf("the selector let through %q", got)
	}
	asJSON := g.kubectl(t, s.sj.Namespace, "list", "-o", "json")
	asJSON.want(0)
	wantSaid(t, asJSON.out.String(), `"kind": "SequentialJobList"`, `"kind": "SequentialJob"`)
}

func TestPluginWatchEndsWithTheRun(t *testing.T) {
	t.Parallel()
	s := tell(t, testbuilder.SequentialJob("etl", "").Step("extract").Step("load").Obj())
	g := newGate(t)
	watch := g.kubectl(t, s.sj.Namespace, "watch", "etl")
	everything := g.kubectl(t, s.sj.Namespace, "watch", "--until-finished")
	s.succeed("extract")
	watch.until("step extract: Succeeded")
	s.end("load", 7, "disk full")
	watch.want(1)
	wantSaid(t, watch.out.String(), "step load: Failed: BackoffLimitExceeded: container load exited with code 7: disk full", "Failed, 1/2 steps")
	everything.want(1)
	wantSaid(t, everything.out.String(), "etl step extract: Succeeded", "etl Failed, 1/2 steps")
}

func TestPluginWatchGoesOnWhenTheAPIServerIsBack(t *testing.T) {
	t.Parallel()
	s := tell(t, testbuilder.SequentialJob("etl", "").Step("extract").Step("load").Obj())
	g := newGate(t)
	watch := g.kubectl(t, s.sj.Namespace, "watch", "etl")
	s.succeed("extract")
	watch.until("step extract: Succeeded")
	g.shut.Store(true)
	g.CloseClientConnections()
	watch.until("connection lost")
	s.succeed("load")
	g.shut.Store(false)
	watch.want(0)
	wantSaid(t, watch.out.String(), "connection restored", "Completed, 2/2 steps")
}

func TestPluginWatchEndsAtOnceWhenInterrupted(t *testing.T) {
	t.Parallel()
	s := tell(t, testbuilder.SequentialJob("etl", "").Step("extract").Obj())
	watch := newGate(t).kubectl(t, s.sj.Namespace, "watch")
	s.podOf("extract")
	watch.stop()
	watch.want(130)
	if said := watch.errOut.String(); said != "" {
		t.Errorf("it complains: %s", said)
	}
}

func TestPluginWatchTellsOfASequenceThatIsDeleted(t *testing.T) {
	t.Parallel()
	s := tell(t, testbuilder.SequentialJob("etl", "").Step("extract").Obj())
	watch := newGate(t).kubectl(t, s.sj.Namespace, "watch", "etl")
	s.podOf("extract")
	watch.until("step extract")
	s.delete()
	watch.want(2)
	wantSaid(t, watch.errOut.String(), "error: sequentialjob.yardmaster.dev/etl was deleted")
}

func TestPluginRerunsFromTheFailedStepAndWatches(t *testing.T) {
	t.Parallel()
	s := tell(t, testbuilder.SequentialJob("etl", "").Step("extract").Step("load").Obj())
	g := newGate(t)
	s.succeed("extract")
	early := g.kubectl(t, s.sj.Namespace, "rerun", "etl")
	early.want(2)
	wantSaid(t, early.errOut.String(), "etl: cannot rerun: its run has not finished, it is Running")
	s.end("load", 1, "")
	s.untilPhase(v1alpha1.PhaseFailed)
	unknown := g.kubectl(t, s.sj.Namespace, "rerun", "etl", "--from=transform")
	unknown.want(2)
	wantSaid(t, unknown.errOut.String(), `cannot rerun from step "transform": no step in containers has this name`)

	rerun := g.kubectl(t, s.sj.Namespace, "rerun", "etl", "--watch")
	rerun.until("step load")
	eventually(t, "the Job of the rerun", func() bool { return len(s.jobs()) == 3 })
	s.succeed("load")
	rerun.want(0)
	wantSaid(t, rerun.out.String(), "sequentialjob.yardmaster.dev/etl reruns from Failed: run 2, id ", "Completed, 2/2 steps")
	if s.now().Status.Run != 2 || s.step("extract").Run != 1 {
		t.Errorf("%s", describe(s.sj))
	}
}

func TestPluginSuspendsAndResumes(t *testing.T) {
	t.Parallel()
	s := tell(t, testbuilder.SequentialJob("etl", "").Step("extract").Step("load").Obj())
	g := newGate(t)
	s.podOf("extract")
	g.kubectl(t, s.sj.Namespace, "suspend", "etl").want(0)
	again := g.kubectl(t, s.sj.Namespace, "suspend", "no-such", "etl")
	again.want(2)
	wantSaid(t, again.out.String(), "sequentialjob.yardmaster.dev/etl is already suspended")
	wantSaid(t, again.errOut.String(), `error: sequentialjobs.yardmaster.dev "no-such" not found`)
	s.succeed("extract")
	s.untilPhase(v1alpha1.PhaseSuspended)
	g.kubectl(t, s.sj.Namespace, "resume", "etl").want(0)
	s.succeed("load")
	s.untilPhase(v1alpha1.PhaseCompleted)
}

func TestPluginFollowsTheLogsOfOneStepAfterAnother(t *testing.T) {
	t.Parallel()
	s := tell(t, testbuilder.SequentialJob("etl", "").Step("extract").Step("load").Obj())
	g := newGate(t)
	follow := g.kubectl(t, s.sj.Namespace, "logs", "etl", "--follow")
	s.podOf("extract")
	follow.until("extract | extract begins")
	s.succeed("extract")
	s.succeed("load")
	s.untilPhase(v1alpha1.PhaseCompleted)
	follow.want(0)
	want := []string{
		"extract | extract begins", "extract | extract ends", "load | load begins", "load | load ends",
	}
	got := strings.Split(strings.TrimSpace(follow.out.String()), "\n")
	if diff := cmp.Diff(want, slices.DeleteFunc(got, func(line string) bool { return strings.HasSuffix(line, "instant") })); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	wantSaid(t, follow.errOut.String(), "retrying")
}

func TestPluginTellsOfLogsThatAreThereAndOfThoseThatAreGone(t *testing.T) {
	t.Parallel()
	s := tell(t, testbuilder.SequentialJob("etl", "").Step("extract").Step("load").Obj())
	g := newGate(t)
	extract := s.podOf("extract")
	s.succeed("extract")
	s.succeed("load")
	s.untilPhase(v1alpha1.PhaseCompleted)
	if err := cluster.Delete(t.Context(), extract, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	s.wantGone(extract)
	logs := g.kubectl(t, s.sj.Namespace, "logs", "etl", "--timestamps")
	logs.want(0)
	want := `load | 2026-03-01T12:00:00.000000001Z load begins
load | 2026-03-01T12:00:00.000000001Z load begins in the same instant
load | 2026-03-01T12:00:00.000000002Z load ends
`
	if diff := cmp.Diff(want, logs.out.String()); diff != "" {
		t.Errorf("logs (-want +got):\n%s", diff)
	}
	wantSaid(t, logs.errOut.String(), "step extract has no log: its Job "+s.step("extract").JobName+" no longer has a Pod")
}
