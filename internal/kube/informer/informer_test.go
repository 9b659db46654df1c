package informer

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/ports"
	"github.com/yardmaster/yardmaster/test/require"
)

// fakeAPIServer serves the ConfigMaps of namespace a and can be stopped. After a restart it has no
// history.
type fakeAPIServer struct {
	t       *testing.T
	address string
	server  *httptest.Server

	mu sync.Mutex
	// running serves requests; nil while the server is stopped.
	running  *http.Server
	objects  map[string]corev1.ConfigMap
	version  int
	oldest   int
	history  []watch.Event // since oldest
	watchers map[chan watch.Event]bool
	// starting is the number of requests that fail before the server has started.
	starting int
}

func newFakeAPIServer(t *testing.T) *fakeAPIServer {
	s := &fakeAPIServer{t: t, address: ports.Reserve(t).String(), objects: map[string]corev1.ConfigMap{}, watchers: map[chan watch.Event]bool{}}
	s.start()
	t.Cleanup(s.stop)
	return s
}

func (s *fakeAPIServer) stop() {
	s.server.Listener.Close()
	s.server.CloseClientConnections()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = nil
	for events := range s.watchers {
		close(events)
		delete(s.watchers, events)
	}
}

func (s *fakeAPIServer) start() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.oldest, s.history = s.version, nil
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", s.address)
	require.NoError(s.t, err)
	s.server = httptest.NewUnstartedServer(s)
	s.server.Listener.Close()
	s.server.Listener = listener
	s.running = s.server.Config
	s.server.Start()
}

// putConfigMap creates or updates an object.
func (s *fakeAPIServer) putConfigMap(name, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, found := s.objects[name]
	s.version++
	object := corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "a", UID: "1", ResourceVersion: strconv.Itoa(s.version)},
		Data:       map[string]string{"value": value},
	}
	s.objects[name] = object
	kind := watch.Added
	if found {
		kind = watch.Modified
	}
	s.broadcastEvent(kind, object)
}

func (s *fakeAPIServer) deleteConfigMap(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	object := s.objects[name]
	delete(s.objects, name)
	s.version++
	object.ResourceVersion = strconv.Itoa(s.version)
	s.broadcastEvent(watch.Deleted, object)
}

func (s *fakeAPIServer) broadcastEvent(kind watch.EventType, object corev1.ConfigMap) {
	event := watch.Event{Type: kind, Object: &object}
	s.history = append(s.history, event)
	for events := range s.watchers {
		events <- event
	}
}

// eventsAfter returns the events after a version.
func (s *fakeAPIServer) eventsAfter(version int) []watch.Event {
	i := slices.IndexFunc(s.history, func(e watch.Event) bool {
		of, err := strconv.Atoi(e.Object.(*corev1.ConfigMap).ResourceVersion)
		return err == nil && of > version
	})
	if i < 0 {
		return nil
	}
	return s.history[i:]
}

func (s *fakeAPIServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch query := r.URL.Query(); {
	case s.isStarting():
		w.Header().Set("Retry-After", "60")
		s.respondWithError(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
	case query.Get("sendInitialEvents") != "":
		s.respondWithError(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
	case query.Get("watch") == "":
		s.serveList(w)
	default:
		s.serveWatch(w, r, query.Get("resourceVersion"))
	}
}

func (s *fakeAPIServer) isStarting() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starting--
	return s.starting >= 0
}

func (*fakeAPIServer) respondWithError(w http.ResponseWriter, code int32, reason metav1.StatusReason) {
	w.WriteHeader(int(code))
	fmt.Fprintf(w, `{"apiVersion":"v1","kind":"Status","status":"Failure","code":%d,"reason":%q,"message":"refused"}`, code, reason)
}

func (s *fakeAPIServer) serveList(w http.ResponseWriter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := corev1.ConfigMapList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMapList"}}
	list.ResourceVersion = strconv.Itoa(s.version)
	for _, object := range s.objects {
		list.Items = append(list.Items, object)
	}
	raw, err := json.Marshal(list)
	if err != nil {
		s.t.Error(err)
	}
	_, _ = w.Write(raw)
}

func (s *fakeAPIServer) serveWatch(w http.ResponseWriter, r *http.Request, from string) {
	events := make(chan watch.Event, 100)
	s.mu.Lock()
	if r.Context().Value(http.ServerContextKey) != s.running {
		s.mu.Unlock()
		panic(http.ErrAbortHandler) // the connection was made just before the server stopped
	}
	since, err := strconv.Atoi(from)
	if err != nil || since < s.oldest {
		s.mu.Unlock()
		s.respondWithError(w, http.StatusGone, metav1.StatusReasonExpired)
		return
	}
	for _, event := range s.eventsAfter(since) {
		events <- event
	}
	s.watchers[events] = true
	s.mu.Unlock()
	flush := func() { _ = http.NewResponseController(w).Flush() }
	flush()
	for {
		select {
		case event, open := <-events:
			if !open {
				return
			}
			raw, err := json.Marshal(event.Object)
			if err != nil {
				return
			}
			fmt.Fprintf(w, "{\"type\":%q,\"object\":%s}\n", event.Type, raw)
			flush()
		case <-r.Context().Done():
			s.mu.Lock()
			delete(s.watchers, events)
			s.mu.Unlock()
			return
		}
	}
}

// eventRecorder records the events that a handler receives.
type eventRecorder struct {
	events chan string
}

func (s *eventRecorder) OnAdd(object any, _ bool) { s.events <- "added " + describeConfigMap(object) }

func (s *eventRecorder) OnUpdate(_, object any) { s.events <- "changed " + describeConfigMap(object) }

func (s *eventRecorder) OnDelete(object any) { s.events <- "deleted " + describeConfigMap(object) }

func describeConfigMap(object any) string {
	configMap := object.(*corev1.ConfigMap)
	return configMap.Name + "=" + configMap.Data["value"]
}

// expectEvents waits for these events in any order, and returns how long that took.
func (s *eventRecorder) expectEvents(t *testing.T, want ...string) (took time.Duration) {
	t.Helper()
	startTime := time.Now()
	var got []string
	poll.Until(t, fmt.Sprintf("the events %q", want), func() bool {
		for len(s.events) > 0 && len(got) < len(want) {
			got = append(got, <-s.events)
		}
		return len(got) == len(want)
	})
	took = time.Since(startTime)
	slices.Sort(got)
	slices.Sort(want)
	require.Equal(t, want, got)
	return took
}

// startInformer starts a cache of the server's ConfigMaps with an event handler.
func startInformer(t *testing.T, s *fakeAPIServer, options cache.Options) (cache.Cache, *eventRecorder) {
	t.Helper()
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	options.Scheme, options.Mapper = scheme.Scheme, mapper
	if options.NewInformer == nil {
		options.NewInformer = NewInformer
	}
	options.HTTPClient = &http.Client{Transport: kube.IgnoreRetryAfter(&http.Transport{})}
	objects, err := cache.New(&rest.Config{Host: "http://" + s.address, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}, options)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error)
	go func() { stopped <- objects.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		<-stopped
	})
	informer, err := objects.GetInformer(ctx, &corev1.ConfigMap{})
	require.NoError(t, err)
	handler := &eventRecorder{make(chan string, 100)}
	if _, err := informer.AddEventHandler(handler); err != nil {
		t.Fatal(err)
	}
	return objects, handler
}

// maxRecovery is the time in which an informer recovers. client-go's own informers wait for up to half a minute from the
// fifth outage on.
const maxRecovery = 5 * time.Second

// requireRecovery fails the test unless an informer recovers within maxRecovery. On a busy machine, it can be late, so
// recoverOnce is called again.
func requireRecovery(t *testing.T, recoverOnce func() time.Duration) {
	t.Helper()
	err := poll.UntilNil(t.Context(), func() error {
		if took := recoverOnce(); took > maxRecovery {
			return fmt.Errorf("the informer recovered after %s, want at most %s", took, maxRecovery)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestAnInformerRecoversAfterEachOutage(t *testing.T) {
	requireRecovery(t, func() (longest time.Duration) {
		s := newFakeAPIServer(t)
		s.putConfigMap("one", "0")
		_, handler := startInformer(t, s, cache.Options{})
		handler.expectEvents(t, "added one=0")
		for outage := range 6 {
			s.stop()
			time.Sleep(400 * time.Millisecond) // the outage
			s.putConfigMap("one", strconv.Itoa(outage+1))
			s.start()
			longest = max(longest, handler.expectEvents(t, "changed one="+strconv.Itoa(outage+1)))
		}
		s.putConfigMap("one", "again") // the watch continues
		handler.expectEvents(t, "changed one=again")
		return longest
	})
}

func TestChangesDuringAnOutageAreReportedOnce(t *testing.T) {
	s := newFakeAPIServer(t)
	for _, name := range []string{"kept", "changed", "deleted"} {
		s.putConfigMap(name, "1")
	}
	objects, handler := startInformer(t, s, cache.Options{})
	handler.expectEvents(t, "added kept=1", "added changed=1", "added deleted=1")
	s.stop()
	s.putConfigMap("changed", "2")
	s.putConfigMap("added", "1")
	s.deleteConfigMap("deleted")
	s.start()
	handler.expectEvents(t, "added added=1", "changed changed=2", "deleted deleted=1")
	s.deleteConfigMap("kept")
	handler.expectEvents(t, "deleted kept=1")
	var list corev1.ConfigMapList
	if err := objects.List(t.Context(), &list); err != nil || len(list.Items) != 2 {
		t.Errorf("%d objects in the cache, error %v", len(list.Items), err)
	}
}

// An API server that has just started sends Retry-After: 5 for kinds that it does not serve yet, but
// serves them much sooner.
func TestAnInformerIgnoresRetryAfterOfAStartingAPIServer(t *testing.T) {
	requireRecovery(t, func() time.Duration {
		s := newFakeAPIServer(t)
		s.putConfigMap("one", "0")
		_, handler := startInformer(t, s, cache.Options{})
		handler.expectEvents(t, "added one=0")
		s.stop()
		s.putConfigMap("one", "1")
		s.starting = 2
		s.start()
		return handler.expectEvents(t, "changed one=1")
	})
}

func TestObjectsAreTransformedBeforeTheyAreCached(t *testing.T) {
	s := newFakeAPIServer(t)
	s.putConfigMap("listed", "1")
	objects, handler := startInformer(t, s, cache.Options{DefaultTransform: func(object any) (any, error) {
		if configMap, ok := object.(*corev1.ConfigMap); ok {
			configMap.Data = map[string]string{"value": "hidden"}
		}
		return object, nil
	}})
	handler.expectEvents(t, "added listed=hidden")
	s.putConfigMap("watched", "1")
	handler.expectEvents(t, "added watched=hidden")
	var list corev1.ConfigMapList
	if err := objects.List(t.Context(), &list); err != nil || len(list.Items) != 2 || list.Items[0].Data["value"] != "hidden" {
		t.Errorf("objects %v, error %v", list.Items, err)
	}
}

func TestOnlyTheFirstOfConsecutiveWatchErrorsIsReported(t *testing.T) {
	var attempts, reported int
	enough := make(chan struct{})
	failing := &toolscache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			attempts++
			if attempts == 3 {
				close(enough)
			}
			return nil, fmt.Errorf("attempt %d", attempts)
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			return nil, fmt.Errorf("attempt %d", attempts)
		},
	}
	i := NewInformer(failing, &corev1.ConfigMap{}, 0, toolscache.Indexers{})
	require.NoError(t, i.SetWatchErrorHandler(func(*toolscache.Reflector, error) { reported++ }))
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		i.Run(stop)
	}()
	<-enough
	close(stop)
	<-stopped
	require.Equal(t, 1, reported)
}
