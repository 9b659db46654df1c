package informer

import (
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/yardmaster/yardmaster/test/require"
)

// fakeAPIServer lists and watches the ConfigMaps of namespace a, and can be stopped. It has no history: a watch begins at the
// current version.
type fakeAPIServer struct {
	mu      sync.Mutex
	isDown  bool
	objects map[string]*corev1.ConfigMap
	version int
	watches []*watch.FakeWatcher
}

func newFakeAPIServer() *fakeAPIServer {
	return &fakeAPIServer{objects: map[string]*corev1.ConfigMap{}, version: 1}
}

func (s *fakeAPIServer) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isDown = true
	for _, w := range s.watches {
		w.Stop()
	}
	s.watches = nil
}

func (s *fakeAPIServer) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isDown = false
	s.version++
}

func (s *fakeAPIServer) putConfigMap(name, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kind := watch.Added
	if s.objects[name] != nil {
		kind = watch.Modified
	}
	s.version++
	s.objects[name] = &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "a", UID: "1", ResourceVersion: strconv.Itoa(s.version)},
		Data:       map[string]string{"value": value},
	}
	s.broadcastEvent(kind, s.objects[name])
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

func (s *fakeAPIServer) broadcastEvent(kind watch.EventType, object *corev1.ConfigMap) {
	for _, w := range s.watches {
		w.Action(kind, object.DeepCopy())
	}
}

// IsWatchListSemanticsUnSupported makes informers start with a list.
func (*fakeAPIServer) IsWatchListSemanticsUnSupported() bool { return true }

// List implements cache.ListerWatcher.
func (s *fakeAPIServer) List(metav1.ListOptions) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isDown {
		return nil, syscall.ECONNREFUSED
	}
	list := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(s.version)}}
	for _, object := range s.objects {
		list.Items = append(list.Items, *object.DeepCopy())
	}
	return list, nil
}

// Watch implements cache.ListerWatcher.
func (s *fakeAPIServer) Watch(options metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isDown {
		return nil, syscall.ECONNREFUSED
	}
	if options.ResourceVersion != strconv.Itoa(s.version) {
		return nil, apierrors.NewResourceExpired("too old")
	}
	w := watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: 100})
	s.watches = append(s.watches, w)
	return w, nil
}

// eventRecorder records the events that a handler receives, and counts the failures that the informer reports.
type eventRecorder struct {
	events   []string
	failures int
}

func (r *eventRecorder) OnAdd(object any, _ bool) { r.record("added", object) }

func (r *eventRecorder) OnUpdate(_, object any) { r.record("changed", object) }

func (r *eventRecorder) OnDelete(object any) { r.record("deleted", object) }

func (r *eventRecorder) record(what string, object any) {
	configMap := object.(*corev1.ConfigMap)
	r.events = append(r.events, what+" "+configMap.Name+"="+configMap.Data["value"])
}

// maxRecovery is the time in which an informer recovers. client-go's own informers wait for up to half a minute from the
// fifth outage on.
const maxRecovery = 5 * time.Second

// expectEvents checks that these events come within maxRecovery, in any order.
func (r *eventRecorder) expectEvents(t *testing.T, want ...string) {
	t.Helper()
	time.Sleep(maxRecovery)
	synctest.Wait()
	slices.Sort(r.events)
	slices.Sort(want)
	require.Equal(t, want, r.events)
	r.events = nil
}

func startInformer(t *testing.T, i cache.SharedIndexInformer) *eventRecorder {
	t.Helper()
	r := &eventRecorder{}
	require.NoError(t, i.SetWatchErrorHandler(func(*cache.Reflector, error) { r.failures++ }))
	_, err := i.AddEventHandler(r)
	require.NoError(t, err)
	go i.RunWithContext(t.Context())
	return r
}

func TestAnInformerRecoversAfterEachOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeAPIServer()
		s.putConfigMap("one", "0")
		recorder := startInformer(t, NewInformer(s, &corev1.ConfigMap{}, 0, cache.Indexers{}))
		recorder.expectEvents(t, "added one=0")
		for outage := range 6 {
			value := strconv.Itoa(outage + 1)
			s.stop()
			time.Sleep(time.Minute)
			s.putConfigMap("one", value)
			s.start()
			recorder.expectEvents(t, "changed one="+value)
		}
		s.putConfigMap("one", "again") // the watch continues
		recorder.expectEvents(t, "changed one=again")
	})
}

func TestChangesDuringAnOutageAreReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeAPIServer()
		for _, name := range []string{"kept", "changed", "deleted"} {
			s.putConfigMap(name, "1")
		}
		informer := NewInformer(s, &corev1.ConfigMap{}, 0, cache.Indexers{})
		recorder := startInformer(t, informer)
		recorder.expectEvents(t, "added kept=1", "added changed=1", "added deleted=1")
		s.stop()
		s.putConfigMap("changed", "2")
		s.putConfigMap("added", "1")
		s.deleteConfigMap("deleted")
		s.start()
		recorder.expectEvents(t, "added added=1", "changed changed=2", "deleted deleted=1")
		s.deleteConfigMap("kept")
		recorder.expectEvents(t, "deleted kept=1")
		require.Equal(t, 2, len(informer.GetStore().List()))
	})
}

func TestObjectsAreTransformedBeforeTheyAreCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeAPIServer()
		s.putConfigMap("listed", "1")
		informer := NewInformer(s, &corev1.ConfigMap{}, 0, cache.Indexers{})
		require.NoError(t, informer.SetTransform(func(object any) (any, error) {
			object.(*corev1.ConfigMap).Data = map[string]string{"value": "hidden"}
			return object, nil
		}))
		recorder := startInformer(t, informer)
		recorder.expectEvents(t, "added listed=hidden")
		s.putConfigMap("watched", "1")
		recorder.expectEvents(t, "added watched=hidden")
	})
}

func TestOnlyTheFirstOfConsecutiveWatchErrorsIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeAPIServer()
		s.stop()
		recorder := startInformer(t, NewInformer(s, &corev1.ConfigMap{}, 0, cache.Indexers{}))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, 1, recorder.failures)
	})
}
