package integration

import (
	"io"
	"net/http"
	"strings"
	"sync"

	"k8s.io/client-go/rest"
)

// requestInterceptor is a transport between a scanner and the API server that counts requests.
type requestInterceptor struct {
	mu     sync.Mutex
	flying map[string]int // pages that were requested and are not read yet, by namespace
	most   map[string]int // maximum of flying
	pages  map[string]int
	writes int
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

// reset restarts the counters.
func (w *requestInterceptor) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.most)
	clear(w.pages)
	w.writes = 0
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
	w.takeOff(namespace)
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

func (w *requestInterceptor) takeOff(namespace string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pages[namespace]++
	w.flying[namespace]++
	w.most[namespace] = max(w.most[namespace], w.flying[namespace])
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
