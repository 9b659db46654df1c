package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/yardmaster/yardmaster/test/poll"
)

// requestInterceptor is a transport between a scanner and the API server. It counts requests, and
// can inject errors into the pages of Jobs.
type requestInterceptor struct {
	mu     sync.Mutex
	flying map[string]int // pages that were requested and are not read yet, by namespace
	most   map[string]int // maximum of flying
	pages  map[string]int
	writes int
	meddle func(request *http.Request, namespace string) error
}

// interceptRequests returns the configuration with an interceptor, and the interceptor.
func interceptRequests(as *rest.Config) (*rest.Config, *requestInterceptor) {
	w := &requestInterceptor{flying: map[string]int{}, most: map[string]int{}, pages: map[string]int{}}
	as = rest.CopyConfig(as)
	as.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) { return w.carry(request, next) })
	})
	return as, w
}

// reset restarts the counters and installs another function that injects errors.
func (w *requestInterceptor) reset(meddle func(request *http.Request, namespace string) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.most)
	clear(w.pages)
	w.writes, w.meddle = 0, meddle
}

func (w *requestInterceptor) carry(request *http.Request, next http.RoundTripper) (*http.Response, error) {
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
	response.Body = &pageBody{ReadCloser: response.Body, land: sync.OnceFunc(func() { w.land(namespace) })}
	return response, nil
}

// jobsOf returns the namespace whose Jobs a request lists.
func jobsOf(request *http.Request) (namespace string, isPage bool) {
	rest, isJob := strings.CutPrefix(request.URL.Path, "/apis/batch/v1/namespaces/")
	namespace, isList := strings.CutSuffix(rest, "/jobs")
	return namespace, isJob && isList
}

func (w *requestInterceptor) takeOff(namespace string) (meddle func(*http.Request, string) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pages[namespace]++
	w.flying[namespace]++
	w.most[namespace] = max(w.most[namespace], w.flying[namespace])
	return w.meddle
}

func (w *requestInterceptor) land(namespace string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.flying[namespace]--
}

// pageBody is the body of a page. The page counts as read when the body is closed.
type pageBody struct {
	io.ReadCloser

	land func()
}

func (l *pageBody) Close() error {
	l.land()
	return l.ReadCloser.Close()
}

// localCluster is the local cluster on which the tests run.
type localCluster struct{ name, directory string }

// requireLocalCluster returns the local cluster. It skips the test on other clusters, whose API server
// it cannot restart and whose etcd it cannot compact.
func requireLocalCluster(t *testing.T) localCluster {
	t.Helper()
	name := os.Getenv("CLUSTER_NAME")
	if name == "" {
		t.Skip("CLUSTER_NAME is not set, and this test restarts the API server of a local cluster: use make test-integration")
	}
	return localCluster{name, filepath.Dir(filepath.Dir(os.Getenv("KUBECONFIG")))}
}

// restartAPIServer kills the API server and waits until it has exited. The cluster restarts it.
func (l localCluster) restartAPIServer(ctx context.Context) error {
	// The kernel closes this connection when the API server exits.
	connection, err := new(net.Dialer).DialContext(ctx, "tcp", strings.TrimPrefix(config.Host, "https://"))
	if err != nil {
		return err
	}
	defer connection.Close()
	output, err := exec.CommandContext(ctx, "localcluster", "restart", "control-plane", "--name", l.name).CombinedOutput()
	if err != nil {
		return fmt.Errorf("restarting the API server: %w: %s", err, output)
	}
	_, _ = connection.Read(make([]byte, 1)) // it returns when the connection is closed
	return nil
}

// compactEtcd removes all versions of objects but the newest: it compacts etcd and restarts the
// API server, whose cache still has some.
func (l localCluster) compactEtcd(ctx context.Context) error {
	if err := writeToCluster(ctx); err != nil { // so that versions that were read before are not the newest
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

// writeToCluster increases the cluster's resourceVersion.
func writeToCluster(ctx context.Context) error {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, GenerateName: "test-"}}
	if err := cluster.Create(ctx, object); err != nil {
		return err
	}
	return cluster.Delete(ctx, object)
}

// untilReady waits until the API server is ready. Before that, it may deny requests because its
// cache of Roles is incomplete.
func untilReady(ctx context.Context) error {
	asker, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	return poll.UntilNil(ctx, func() error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/readyz", http.NoBody)
		if err != nil {
			return err
		}
		response, err := asker.Do(request)
		if err != nil {
			return err
		}
		if response.StatusCode != http.StatusOK {
			err = fmt.Errorf("/readyz of the API server: %s", response.Status)
		}
		return errors.Join(err, response.Body.Close())
	})
}

// etcd sends a request to the cluster's etcd through its socket.
func (l localCluster) etcd(ctx context.Context, call string, body map[string]any, answer any) error {
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
