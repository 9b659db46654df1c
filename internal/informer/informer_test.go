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

	"github.com/google/go-cmp/cmp"
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
)

// apiServer serves ConfigMaps of the namespace a, and can go away. One that is back knows
// nothing of versions before.
type apiServer struct {
	t       *testing.T
	address string
	server  *httptest.Server

	mu       sync.Mutex
	objects  map[string]corev1.ConfigMap
	version  int
	oldest   int
	history  []watch.Event // since the oldest version that is known
	watchers map[chan watch.Event]bool
	// starting is how many requests still come before all kinds are served.
	starting int
}

func newAPIServer(t *testing.T) *apiServer {
	s := &apiServer{t: t, address: "127.0.0.1:0", objects: map[string]corev1.ConfigMap{}, watchers: map[chan watch.Event]bool{}}
	s.comeBack()
	t.Cleanup(s.goAway)
	return s
}

func (s *apiServer) goAway() {
	s.server.CloseClientConnections()
	s.server.Listener.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for events := range s.watchers {
		close(events)
		delete(s.watchers, events)
	}
}

func (s *apiServer) comeBack() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.oldest, s.history = s.version, nil
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", s.address)
	if err != nil {
		s.t.Fatal(err)
	}
	s.address = listener.Addr().String()
	s.server = httptest.NewUnstartedServer(s)
	s.server.Listener.Close()
	s.server.Listener = listener
	s.server.Start()
}

// put makes or changes an object, and remove removes it.
func (s *apiServer) put(name, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, there := s.objects[name]
	s.version++
	object := corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "a", UID: "1", ResourceVersion: strconv.Itoa(s.version)},
		Data:       map[string]string{"value": value},
	}
	s.objects[name] = object
	kind := watch.Added
	if there {
		kind = watch.Modified
	}
	s.tell(kind, object)
}

func (s *apiServer) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	object := s.objects[name]
	delete(s.objects, name)
	s.version++
	object.ResourceVersion = strconv.Itoa(s.version)
	s.tell(watch.Deleted, object)
}

func (s *apiServer) tell(kind watch.EventType, object corev1.ConfigMap) {
	event := watch.Event{Type: kind, Object: &object}
	s.history = append(s.history, event)
	for events := range s.watchers {
		events <- event
	}
}

// after are the events after a version.
func (s *apiServer) after(version int) []watch.Event {
	i := slices.IndexFunc(s.history, func(e watch.Event) bool {
		of, err := strconv.Atoi(e.Object.(*corev1.ConfigMap).ResourceVersion)
		return err == nil && of > version
	})
	if i < 0 {
		return nil
	}
	return s.history[i:]
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch query := r.URL.Query(); {
	case s.starts():
		w.Header().Set("Retry-After", "60")
		s.refuse(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
	case query.Get("sendInitialEvents") != "":
		s.refuse(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
	case query.Get("watch") == "":
		s.list(w)
	default:
		s.watch(w, r, query.Get("resourceVersion"))
	}
}

func (s *apiServer) starts() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starting--
	return s.starting >= 0
}

func (*apiServer) refuse(w http.ResponseWriter, code int32, reason metav1.StatusReason) {
	w.WriteHeader(int(code))
	fmt.Fprintf(w, `{"apiVersion":"v1","kind":"Status","status":"Failure","code":%d,"reason":%q,"message":"refused"}`, code, reason)
}

func (s *apiServer) list(w http.ResponseWriter) {
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

func (s *apiServer) watch(w http.ResponseWriter, r *http.Request, from string) {
	events := make(chan watch.Event, 100)
	s.mu.Lock()
	since, err := strconv.Atoi(from)
	if err != nil || since < s.oldest {
		s.mu.Unlock()
		s.refuse(w, http.StatusGone, metav1.StatusReasonExpired)
		return
	}
	for _, event := range s.after(since) {
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

// seen is what handlers are told.
type seen struct {
	told chan string
}

func (s *seen) OnAdd(object any, _ bool) { s.told <- "added " + said(object) }

func (s *seen) OnUpdate(_, object any) { s.told <- "changed " + said(object) }

func (s *seen) OnDelete(object any) { s.told <- "deleted " + said(object) }

func said(object any) string {
	configMap := object.(*corev1.ConfigMap)
	return configMap.Name + "=" + configMap.Data["value"]
}

// expect takes so many things that are told, in any order, within a time.
func (s *seen) expect(t *testing.T, within time.Duration, want ...string) {
	t.Helper()
	deadline := time.After(within)
	var got []string
	for len(got) < len(want) {
		select {
		case one := <-s.told:
			got = append(got, one)
		case <-deadline:
			t.Fatalf("told %q within %s, want %q", got, within, want)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("told (-want +got):\n%s", diff)
	}
}

// watching is a cache of the server's ConfigMaps, with a handler.
func watching(t *testing.T, s *apiServer, options cache.Options) (cache.Cache, *seen) {
	t.Helper()
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	options.Scheme, options.Mapper, options.NewInformer = scheme.Scheme, mapper, NewInformer
	options.HTTPClient = &http.Client{Transport: kube.IgnoreRetryAfter(&http.Transport{})}
	objects, err := cache.New(&rest.Config{Host: "http://" + s.address, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}, options)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error)
	go func() { stopped <- objects.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		select {
		case <-stopped:
		case <-time.After(10 * time.Second):
			t.Error("the cache does not stop")
		}
	})
	informer, err := objects.GetInformer(ctx, &corev1.ConfigMap{})
	if err != nil {
		t.Fatal(err)
	}
	handler := &seen{make(chan string, 100)}
	if _, err := informer.AddEventHandler(handler); err != nil {
		t.Fatal(err)
	}
	return objects, handler
}

// patience is what a busy machine may take. client-go's own informers wait for up to half a
// minute from the fifth outage on.
const patience = 5 * time.Second

func TestAnInformerFindsBackToTheAPIServerEachTime(t *testing.T) {
	s := newAPIServer(t)
	s.put("one", "0")
	_, handler := watching(t, s, cache.Options{})
	handler.expect(t, patience, "added one=0")
	for outage := range 6 {
		s.goAway()
		time.Sleep(400 * time.Millisecond) // so long it is away
		s.put("one", strconv.Itoa(outage+1))
		s.comeBack()
		handler.expect(t, patience, "changed one="+strconv.Itoa(outage+1))
	}
	s.put("one", "again") // and the watch goes on
	handler.expect(t, patience, "changed one=again")
}

func TestWhatHappensWhileTheAPIServerIsAwayIsToldOnce(t *testing.T) {
	s := newAPIServer(t)
	for _, name := range []string{"kept", "changed", "deleted"} {
		s.put(name, "1")
	}
	objects, handler := watching(t, s, cache.Options{})
	handler.expect(t, patience, "added kept=1", "added changed=1", "added deleted=1")
	s.goAway()
	s.put("changed", "2")
	s.put("added", "1")
	s.remove("deleted")
	s.comeBack()
	handler.expect(t, patience, "added added=1", "changed changed=2", "deleted deleted=1")
	s.remove("kept")
	handler.expect(t, patience, "deleted kept=1")
	var list corev1.ConfigMapList
	if err := objects.List(t.Context(), &list); err != nil || len(list.Items) != 2 {
		t.Errorf("%d objects in the cache, error %v", len(list.Items), err)
	}
}

// An API server that has just started asks those who come before it serves all kinds to come
// again in five seconds. By then it has long been well.
func TestAnInformerDoesNotWaitAsLongAsAnAPIServerThatStartsAsksItTo(t *testing.T) {
	s := newAPIServer(t)
	s.put("one", "0")
	_, handler := watching(t, s, cache.Options{})
	handler.expect(t, patience, "added one=0")
	s.goAway()
	s.put("one", "1")
	s.starting = 2
	s.comeBack()
	handler.expect(t, patience, "changed one=1")
}

func TestAnInformerStartsWhenTheAPIServerDoes(t *testing.T) {
	s := newAPIServer(t)
	s.put("one", "1")
	s.goAway()
	time.AfterFunc(300*time.Millisecond, s.comeBack)
	_, handler := watching(t, s, cache.Options{})
	handler.expect(t, patience, "added one=1")
}

func TestObjectsAreTransformedBeforeAnybodySeesThem(t *testing.T) {
	s := newAPIServer(t)
	s.put("listed", "1")
	objects, handler := watching(t, s, cache.Options{DefaultTransform: func(object any) (any, error) {
		if configMap, is := object.(*corev1.ConfigMap); is {
			configMap.Data = map[string]string{"value": "hidden"}
		}
		return object, nil
	}})
	handler.expect(t, patience, "added listed=hidden")
	s.put("watched", "1")
	handler.expect(t, patience, "added watched=hidden")
	var list corev1.ConfigMapList
	if err := objects.List(t.Context(), &list); err != nil || len(list.Items) != 2 || list.Items[0].Data["value"] != "hidden" {
		t.Errorf("objects %v, error %v", list.Items, err)
	}
}

func TestOfFailuresInARowTheFirstIsTold(t *testing.T) {
	var tries, told int
	enough := make(chan struct{})
	failing := &toolscache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			tries++
			if tries == 3 {
				close(enough)
			}
			return nil, fmt.Errorf("try %d", tries)
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			return nil, fmt.Errorf("try %d", tries)
		},
	}
	i := NewInformer(failing, &corev1.ConfigMap{}, 0, toolscache.Indexers{})
	if err := i.SetWatchErrorHandler(func(*toolscache.Reflector, error) { told++ }); err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		i.Run(stop)
	}()
	<-enough
	close(stop)
	<-stopped
	if told != 1 {
		t.Errorf("told %d times", told)
	}
}
