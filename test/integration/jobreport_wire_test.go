package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
)

// wire is a transport between a scanner and the API server. It counts requests, and can inject
// errors into the pages of Jobs.
type wire struct {
	mu     sync.Mutex
	flying map[string]int // pages that were requested and are not read yet, by namespace
	most   map[string]int // maximum of flying
	pages  map[string]int
	writes int
	meddle func(request *http.Request, namespace string) error
}

// wired returns the configuration with a wire, and the wire.
func wired(as *rest.Config) (*rest.Config, *wire) {
	w := &wire{flying: map[string]int{}, most: map[string]int{}, pages: map[string]int{}}
	as = rest.CopyConfig(as)
	as.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) { return w.carry(request, next) })
	})
	return as, w
}

// reset restarts the counters and installs another function that injects errors.
func (w *wire) reset(meddle func(request *http.Request, namespace string) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.most)
	clear(w.pages)
	w.writes, w.meddle = 0, meddle
}

func (w *wire) carry(request *http.Request, next http.RoundTripper) (*http.Response, error) {
	if isWrite(request) {
		w.mu.Lock()
		w.writes++
		w.mu.Unlock()
	}
	namespace, isPage := jobsOf(request)
	if !isPage {
		return next.RoundTrip(request)
	}
	if meddle := w.takeOff(namespace); meddle != nil {
		if err := meddle(request, namespace); err != nil {
			w.land(namespace)
			return nil, err
		}
	}
	response, err := next.RoundTrip(request)
	if err != nil {
		w.land(namespace)
		return nil, err
	}
	response.Body = &landing{ReadCloser: response.Body, land: sync.OnceFunc(func() { w.land(namespace) })}
	return response, nil
}

// jobsOf returns the namespace whose Jobs a request lists.
func jobsOf(request *http.Request) (namespace string, isPage bool) {
	rest, isJob := strings.CutPrefix(request.URL.Path, "/apis/batch/v1/namespaces/")
	namespace, isList := strings.CutSuffix(rest, "/jobs")
	return namespace, isJob && isList
}

func (w *wire) takeOff(namespace string) (meddle func(*http.Request, string) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pages[namespace]++
	w.flying[namespace]++
	w.most[namespace] = max(w.most[namespace], w.flying[namespace])
	return w.meddle
}

func (w *wire) land(namespace string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.flying[namespace]--
}

// landing is the body of a page. The page counts as read when the body is closed.
type landing struct {
	io.ReadCloser

	land func()
}

func (l *landing) Close() error {
	l.land()
	return l.ReadCloser.Close()
}

// local is the local cluster on which the tests run.
type local struct{ name, directory string }

// localCluster returns the local cluster. It skips the test on other clusters, whose API server it
// cannot restart and whose etcd it cannot compact.
func localCluster(t *testing.T) local {
	t.Helper()
	name := os.Getenv("CLUSTER_NAME")
	if name == "" {
		t.Skip("CLUSTER_NAME is not set, and this test restarts the API server of a local cluster: use make test-integration")
	}
	return local{name, filepath.Dir(filepath.Dir(os.Getenv("KUBECONFIG")))}
}

// restartAPIServer kills the API server and waits until it has exited. The cluster restarts it.
func (l local) restartAPIServer(ctx context.Context) error {
	output, err := exec.CommandContext(ctx, "localcluster", "restart", "control-plane", "--name", l.name).CombinedOutput()
	if err != nil {
		return fmt.Errorf("restarting the API server: %w: %s", err, output)
	}
	address := strings.TrimPrefix(config.Host, "https://")
	return wait.PollUntilContextTimeout(ctx, 5*time.Millisecond, 10*time.Second, true, func(ctx context.Context) (bool, error) {
		connection, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			return true, nil //nolint:nilerr // the API server has exited
		}
		return false, connection.Close()
	})
}

// forgetThePast removes all versions of objects but the newest: it compacts etcd, and restarts the
// API server, which caches older versions.
func (l local) forgetThePast(ctx context.Context) error {
	if err := touch(ctx); err != nil { // so that versions that were read before are not the newest
		return err
	}
	var newest struct {
		Header struct{ Revision string }
	}
	if err := l.etcd(ctx, "range", map[string]any{"key": "AA=="}, &newest); err != nil {
		return err
	}
	if err := l.etcd(ctx, "compaction", map[string]any{"revision": newest.Header.Revision, "physical": true}, nil); err != nil {
		return err
	}
	if err := l.restartAPIServer(ctx); err != nil {
		return err
	}
	return untilReady(ctx)
}

// touch increases the cluster's resourceVersion.
func touch(ctx context.Context) error {
	something := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, GenerateName: "test-"}}
	if err := cluster.Create(ctx, something); err != nil {
		return err
	}
	return cluster.Delete(ctx, something)
}

// untilReady waits until the API server is ready. Before that, it may deny requests because its
// cache of Roles is incomplete.
func untilReady(ctx context.Context) error {
	asker, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 30*time.Second, false, func(ctx context.Context) (bool, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/readyz", http.NoBody)
		if err != nil {
			return false, err
		}
		response, err := asker.Do(request)
		if err != nil {
			return false, nil //nolint:nilerr // not yet
		}
		return response.StatusCode == http.StatusOK, response.Body.Close()
	})
}

// etcd sends a request to the cluster's etcd through its socket.
func (l local) etcd(ctx context.Context, call string, body map[string]any, answer any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://etcd/v3/kv/"+call, bytes.NewReader(raw))
	if err != nil {
		return err
	}
	asker := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(l.directory, "etcd:0"))
		},
	}}
	response, err := asker.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if raw, err = io.ReadAll(response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd %s: %s: %s", call, response.Status, raw)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(raw, answer)
}
