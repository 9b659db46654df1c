// Package ui tests `kubectl yardmaster ui` in a real browser, headless Chromium, against the API server of KUBECONFIG. The
// plugin runs as a process of its own, so that its memory can be measured.
//
// It is a Go module of its own, because nobody who builds the operator or the plugin needs the client of the browser.
package ui

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	cdpruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

const repositoryRoot = "../.."

var (
	config  *rest.Config
	cluster client.Client
	// pluginPath is the built plugin.
	pluginPath string
)

func TestMain(m *testing.M) {
	if os.Getenv("KUBECONFIG") == "" {
		fmt.Println("KUBECONFIG is not set, so there is no cluster to test against: use make soak SOAK_PARTS=ui")
		return
	}
	dir, err := os.MkdirTemp("", "yardmaster-ui-")
	if err == nil {
		err = prepare(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

func prepare(dir string) error {
	pluginPath = filepath.Join(dir, "kubectl-yardmaster")
	build := exec.Command("go", "build", "-ldflags", "-s -w", "-o", pluginPath, "./cmd/kubectl-yardmaster")
	build.Dir = repositoryRoot
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building the plugin: %w: %s", err, out)
	}
	var err error
	if config, err = clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG")); err != nil {
		return err
	}
	config.QPS, config.Burst = 2000, 2000
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	if cluster, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	_, err = envtest.InstallCRDs(config, envtest.CRDInstallOptions{Paths: []string{filepath.Join(repositoryRoot, "config", "crd", "bases")}})
	return err
}

func newNamespace(t *testing.T, prefix string) string {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix}}
	require.NoError(t, cluster.Create(t.Context(), ns))
	t.Cleanup(func() { _ = cluster.Delete(context.Background(), ns) })
	return ns.Name
}

type runningUI struct {
	*exec.Cmd

	proxy *apiServerProxy
	// loginURL works once; base is the address of the overview.
	loginURL, base string
}

func startUI(t *testing.T, args ...string) *runningUI {
	return startUIBehind(t, newAPIServerProxy(t), args...)
}

func startUIBehind(t *testing.T, proxy *apiServerProxy, args ...string) *runningUI {
	command := exec.Command(pluginPath, append([]string{"ui", "--no-browser", "--kubeconfig", proxy.writeKubeconfig(t)}, args...)...)
	command.Stderr = os.Stderr
	out, err := command.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	u := &runningUI{Cmd: command, proxy: proxy}
	t.Cleanup(u.stop)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "http://") {
			u.loginURL = lines.Text()
			u.base, _, _ = strings.Cut(u.loginURL, "/login")
			go io.Copy(io.Discard, out)
			return u
		}
	}
	t.Fatal("the command printed no address")
	return nil
}

func (u *runningUI) stop() {
	_ = u.Process.Kill()
	_ = u.Wait()
}

func contains(text, part string) bool { return strings.Contains(text, part) }

// browser is a tab of Chromium that has opened the page.
type browser struct {
	t   *testing.T
	ui  *runningUI
	ctx context.Context

	mu sync.Mutex
	// problems are errors and violations of the content security policy; requests are to other hosts.
	problems, requests []string
}

func (b *browser) setOffline(offline bool) {
	b.t.Helper()
	b.run("changing the network", command(network.EmulateNetworkConditionsByRule, network.EmulateNetworkConditionsByRuleParams{
		MatchedNetworkConditions: []*network.Conditions{{Offline: offline, DownloadThroughput: -1, UploadThroughput: -1}},
	}))
}

// setHidden simulates that the tab is in the background, or in front again.
func (b *browser) setHidden(hidden bool) {
	b.t.Helper()
	evaluate[bool](b, fmt.Sprintf("Object.defineProperty(document, 'hidden', {value: %t, configurable: true}); document.dispatchEvent(new Event('visibilitychange'))", hidden))
}

func staleJob(ns, name string) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns},
		Spec: batchv1.JobSpec{
			Suspend:  new(true), // the Job controller creates no Pod before the status is set
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "train", Image: "registry.example/train:1"}}}},
		},
	}
}

// failStaleJob makes the Job one that failed a month ago.
func failStaleJob(job *batchv1.Job) {
	begin, end := ago(31*24*time.Hour), ago(30*24*time.Hour)
	job.Status.StartTime, job.Status.Failed = begin, 1
	for _, kind := range []batchv1.JobConditionType{batchv1.JobFailureTarget, batchv1.JobFailed} {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue, Reason: batchv1.JobReasonBackoffLimitExceeded, Message: "Job has reached the specified backoff limit", LastTransitionTime: *end, LastProbeTime: *end})
	}
}

func (b *browser) press(keys string) {
	b.t.Helper()
	b.run("pressing "+keys, chromedp.KeyEvent(keys))
}

// stepTimeout limits each step of a test, and attemptTimeout each attempt of a wait: the browser may open another page.
const stepTimeout, attemptTimeout = 5 * time.Minute, 10 * time.Second

func openBrowser(t *testing.T, u *runningUI) *browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	require.True(t, err == nil, "chromium is not installed: use make soak SOAK_PARTS=ui")
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.WindowSize(1280, 900))
	allocator, stopAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(stopAllocator)
	ctx, stop := chromedp.NewContext(allocator)
	t.Cleanup(stop)
	b := &browser{t: t, ui: u, ctx: ctx}
	require.NoError(t, chromedp.Listen(ctx, b.record)) // starts the browser, which ends with this context
	b.run("logging in", command(network.Enable, network.EnableParams{}), command(log.Enable, cdp.Empty{}), chromedp.Navigate(u.loginURL), chromedp.WaitVisible(chromedp.CSS("main h1")))
	return b
}

// record keeps what no page may do.
func (b *browser) record(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch event := event.(type) {
	case *cdpruntime.EventExceptionThrown:
		b.problems = append(b.problems, fmt.Sprintf("%s %v", event.ExceptionDetails.Text, event.ExceptionDetails.Exception))
	case *log.EventEntryAdded:
		if event.Entry.Source != log.EntrySourceNetwork { // a lost connection is not an error of the page
			b.problems = append(b.problems, event.Entry.Text)
		}
	case *page.EventJavascriptDialogOpening:
		b.problems = append(b.problems, "dialog: "+event.Message)
	case *network.EventRequestWillBeSent:
		if address := event.Request.URL; !strings.HasPrefix(address, b.ui.base) && !strings.HasPrefix(address, "data:") {
			b.requests = append(b.requests, address)
		}
	}
}

// expectNoProblems fails the test if a script failed, the content security policy was violated, or another host was requested.
func (b *browser) expectNoProblems() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	require.True(b.t, len(b.problems) == 0, "problems of the page: %q", b.problems)
	require.True(b.t, len(b.requests) == 0, "requests to other addresses: %q", b.requests)
}

func command[P, R any](call cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, call, params)
		return err
	})
}

func (b *browser) run(what string, actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, stepTimeout)
	defer cancel()
	err := chromedp.Do(ctx, actions...)
	require.True(b.t, err == nil, "%s: %v; the page shows:\n%s", what, err, b.bestEffortText("body"))
}

// bestEffortText returns the visible text of an element, and nothing while the browser opens another page.
func (b *browser) bestEffortText(selector string) string {
	ctx, cancel := context.WithTimeout(b.ctx, attemptTimeout)
	defer cancel()
	text, _ := chromedp.Run(ctx, chromedp.Evaluate[string](fmt.Sprintf("document.querySelector(%s)?.innerText ?? ''", quote(selector))))
	return text
}

// open opens a page, whose path begins after the base.
func (b *browser) open(path string) {
	b.t.Helper()
	b.run("opening "+path, chromedp.Navigate(b.ui.base+path), chromedp.WaitVisible(chromedp.CSS("main h1")))
}

func (b *browser) text(selector string) string {
	b.t.Helper()
	return evaluate[string](b, fmt.Sprintf("document.querySelector(%s)?.innerText ?? ''", quote(selector)))
}

// evaluate returns the value of a script, or what its promise resolves to.
func evaluate[T any](b *browser, script string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, stepTimeout)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](script, func(p *cdpruntime.EvaluateParams) { p.AwaitPromise = new(true) }))
	require.True(b.t, err == nil, "evaluating %.300s: %v", script, err)
	return value
}

func (b *browser) waitForText(selector string, texts ...string) {
	b.t.Helper()
	err := poll.UntilNil(b.t.Context(), func() error {
		shown := b.bestEffortText(selector)
		for _, text := range texts {
			if !strings.Contains(shown, text) {
				return fmt.Errorf("%s does not show %q:\n%s", selector, text, shown)
			}
		}
		return nil
	})
	require.NoError(b.t, err)
}

// do clicks the button of an action, confirms it, and returns what the dialog shows.
func (b *browser) do(label, confirm string) string {
	b.t.Helper()
	b.clickText("main a.button", label)
	return b.confirm(label, confirm)
}

// confirm confirms the action that the dialog shows, and returns what it shows then.
func (b *browser) confirm(label, confirm string) string {
	b.t.Helper()
	b.waitForText("#dialog", label, "kubectl yardmaster")
	if confirm != "" {
		b.run("typing", chromedp.SendKeys(chromedp.CSS("#confirm"), confirm))
	}
	b.run("confirming", chromedp.Click(chromedp.CSS("#dialog form button[type=submit]")))
	b.waitForText("#dialog", "The command")
	result := b.text("#dialog")
	b.run("closing", chromedp.Click(chromedp.CSS("#dialog a[data-close]")))
	return result
}

// clickText clicks the element with this text. Until htmx has found a link of its own, which may be after the page is
// complete, the link opens a page instead of the dialog.
func (b *browser) clickText(selector, text string) {
	b.t.Helper()
	script := fmt.Sprintf(`(() => {
		const e = [...document.querySelectorAll(%s)].find(e => e.innerText.trim() === %s), powered = e?.form ?? e;
		if (document.readyState !== 'complete' || !e || powered.hasAttribute('hx-get') && !powered.hasAttribute('data-htmx-powered')) return false;
		e.click();
		return true;
	})()`, quote(selector), quote(text))
	poll.Until(b.t, selector+" with the text "+text, func() bool { return evaluate[bool](b, script) })
}

func quote(text string) string {
	raw, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string can always be encoded
	}
	return string(raw)
}

func (b *browser) useColors(scheme string) {
	b.t.Helper()
	b.run("selecting "+scheme, command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}))
}

// screenshot writes what the page shows to a file, if SCREENSHOTS names a directory.
func (b *browser) screenshot(name string) {
	b.t.Helper()
	dir := os.Getenv("SCREENSHOTS")
	if dir == "" {
		return
	}
	const quality = 80
	image, err := chromedp.Call(b.ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: page.CaptureScreenshotFormatWebp, Quality: new(int64(quality))})
	require.NoError(b.t, err)
	require.NoError(b.t, os.WriteFile(dir+"/"+name+".webp", image.Data, 0o644))
}

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
	path := filepath.Join(t.TempDir(), "kubeconfig")
	file := clientcmdapi.NewConfig()
	file.Clusters["test"] = &clientcmdapi.Cluster{Server: p.URL}
	file.Contexts["test"] = &clientcmdapi.Context{Cluster: "test"}
	file.CurrentContext = "test"
	require.NoError(t, clientcmd.WriteToFile(*file, path))
	return path
}
