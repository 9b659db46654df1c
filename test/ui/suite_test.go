// Package ui tests `kubectl yardmaster ui` in a real browser, headless Chromium, against the API server of KUBECONFIG. The
// plugin runs as a process of its own, so that its memory can be measured.
//
// It is a Go module of its own, because nobody who builds the operator or the plugin needs the client of the browser.
package ui

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
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
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return err
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return err
	}
	if cluster, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	_, err = envtest.InstallCRDs(config, envtest.CRDInstallOptions{Paths: []string{filepath.Join(repositoryRoot, "config", "crd", "bases")}})
	return err
}

// newNamespace creates a namespace that is deleted after the test.
func newNamespace(t *testing.T, prefix string) string {
	t.Helper()
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
	t.Helper()
	return startUIBehind(t, newAPIServerProxy(t), args...)
}

// startUIBehind starts the command, whose API server is the proxy.
func startUIBehind(t *testing.T, proxy *apiServerProxy, args ...string) *runningUI {
	t.Helper()
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

// setOffline disconnects the browser, or connects it again.
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

// press presses keys.
func (b *browser) press(keys string) {
	b.t.Helper()
	b.run("pressing "+keys, chromedp.KeyEvent(keys))
}
