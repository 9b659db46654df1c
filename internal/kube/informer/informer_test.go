package informer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/yardmaster/yardmaster/test/require"
)

// fakeAPIServer lists and watches the ConfigMaps of namespace a, and can be stopped. It has no history: a watch begins at the current version.
type fakeAPIServer struct {
	mu      sync.Mutex
	failure error
	lists   int
	objects map[string]*corev1.ConfigMap
	version int
	watches []*watch.FakeWatcher
}

func newFakeAPIServer() *fakeAPIServer {
	return &fakeAPIServer{objects: map[string]*corev1.ConfigMap{}, version: 1}
}

func (s *fakeAPIServer) stop() { s.fail(syscall.ECONNREFUSED) }

func (s *fakeAPIServer) fail(failure error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure, s.lists = failure, 0
	for _, w := range s.watches {
		w.Stop()
	}
	s.watches = nil
}

func (s *fakeAPIServer) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure = nil
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
	s.lists++
	if s.failure != nil {
		return nil, s.failure
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
	if s.failure != nil {
		return nil, s.failure
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
func (r *eventRecorder) OnUpdate(_, object any)   { r.record("changed", object) }
func (r *eventRecorder) OnDelete(object any)      { r.record("deleted", object) }

func (r *eventRecorder) record(what string, object any) {
	configMap := object.(*corev1.ConfigMap)
	r.events = append(r.events, what+" "+configMap.Name+"="+configMap.Data["value"])
}

// maxRecovery is the time in which an informer recovers. client-go's own informers wait for up to half a minute from the fifth outage on.
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
	require.Call(i.AddEventHandler(r)).Succeeds(t)
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

// A namespace that the API server refuses, where someone deleted a RoleBinding, delays nothing else. Only a refusal has this effect.
func TestARefusedInformerDelaysNobodyAndListsWhenItMay(t *testing.T) {
	refused := apierrors.NewForbidden(corev1.Resource("configmaps"), "", errors.New("no RBAC policy matched"))
	starting := apierrors.NewForbidden(corev1.Resource("configmaps"), "", errors.New("not yet ready to handle request"))
	synctest.Test(t, func(t *testing.T) {
		s := newFakeAPIServer()
		s.putConfigMap("one", "1")
		i := NewInformer(s, &corev1.ConfigMap{}, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
		var recorder *eventRecorder
		var handled cache.ResourceEventHandlerRegistration
		for step, row := range []struct {
			failure    error
			wantSynced bool
			wantRead   error
			wantAccess error
			wantErrors int // reported: the first of each series, and the first refusal
			wantLists  int // at most, in an hour
		}{
			{syscall.ECONNREFUSED, false, errNotListed, nil, 1, 12_000},
			{starting, false, errNotListed, nil, 1, 12_000},
			{refused, true, refused, refused, 2, 150},
			{nil, true, nil, nil, 2, 2},
			{refused, true, nil, refused, 3, 150}, // the known objects remain
		} {
			s.fail(row.failure)
			if step == 0 {
				recorder = startInformer(t, i)
				handled = require.Call(i.AddEventHandlerWithOptions(&eventRecorder{}, cache.HandlerOptions{})).Succeeds(t)
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			_, found, err := i.GetIndexer().GetByKey("a/one")
			listed, listErr := i.GetIndexer().ByIndex(cache.NamespaceIndex, "a")
			require.ErrorIs(t, err, row.wantRead)
			require.ErrorIs(t, listErr, row.wantRead)
			require.ErrorIs(t, CheckAccess(nil), row.wantAccess)
			require.Equal(t, row.wantSynced, i.HasSynced())
			require.Equal(t, row.wantSynced, handled.HasSynced())
			require.Equal(t, row.wantRead == nil, found && len(listed) == 1 && len(recorder.events) == 1)
			require.Equal(t, row.wantErrors, recorder.failures)
			require.Equal(t, row.wantAccess != nil, testutil.CollectAndCount(informers) == 1)
			require.True(t, s.lists <= row.wantLists, "step %d: %d lists in an hour", step, s.lists)
		}
		require.NoError(t, i.RemoveEventHandler(handled))
	})
}

// flakyListerWatcher fails if it has a failure.
type flakyListerWatcher struct {
	failure error
	version string
	events  watch.Interface
}

func (u *flakyListerWatcher) List(metav1.ListOptions) (runtime.Object, error) {
	return &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: u.version}}, u.failure
}

func (u *flakyListerWatcher) Watch(metav1.ListOptions) (watch.Interface, error) {
	return u.events, u.failure
}

func TestARecoveryLastsFromTheFirstFailureToTheNextWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var recoveries []time.Duration
		server := &flakyListerWatcher{events: watch.NewFake()}
		r := newRecoveryListerWatcher(server, func(d time.Duration) { recoveries = append(recoveries, d) }, nil)
		attempt := func(failure error) {
			server.failure = failure
			_, err := r.WatchWithContext(t.Context(), metav1.ListOptions{})
			require.ErrorIs(t, err, failure)
		}
		attempt(nil) // before any failure
		for range 3 {
			attempt(errors.New("refused"))
			time.Sleep(time.Minute)
		}
		server.failure = nil
		require.Call(r.ListWithContext(t.Context(), metav1.ListOptions{})).Succeeds(t)
		time.Sleep(time.Second)
		attempt(nil)
		attempt(nil)
		require.Equal(t, []time.Duration{3*time.Minute + time.Second}, recoveries)
	})
}

func TestStoppingAnInformerIsNotAFailure(t *testing.T) {
	r := newRecoveryListerWatcher(&flakyListerWatcher{failure: context.Canceled}, nil, nil)
	stopped, stop := context.WithCancel(t.Context())
	stop()
	_, err := r.ListWithContext(stopped, metav1.ListOptions{})
	require.True(t, err != nil && r.failedSince.IsZero(), "error %v, failed since %v", err, r.failedSince)
}

func TestAStoppedWatchLeaksNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // fails if a goroutine remains
		source := watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: 1})
		source.Add(&corev1.ConfigMap{})
		forwarding := watch.Filter(source, func(event watch.Event) (watch.Event, bool) { return event, true })
		lists := &flakyListerWatcher{events: forwarding}
		events := require.Call(newRecoveryListerWatcher(lists, nil, nil).WatchWithContext(t.Context(), metav1.ListOptions{})).Succeeds(t)
		synctest.Wait() // the forwarding goroutine blocks on the event
		events.Stop()
	})
}

// restore stops the server and starts it with an earlier state.
func (s *fakeAPIServer) restore(change func()) {
	s.mu.Lock()
	objects, version := maps.Clone(s.objects), s.version
	s.mu.Unlock()
	change()
	s.stop()
	s.mu.Lock()
	s.objects, s.version = objects, version
	s.mu.Unlock()
	s.start()
}

func TestARestoreOfEtcdIsDetectedWhenAWatchReconnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, detector := newFakeAPIServer(), NewRestoreDetector()
		s.putConfigMap("kept", "1")
		recorder := startInformer(t, detector.NewInformer(s, &corev1.ConfigMap{}, 0, cache.Indexers{}))
		recorder.expectEvents(t, "added kept=1")
		s.restore(func() {
			s.putConfigMap("lost", "1")
			s.putConfigMap("kept", "2")
			s.putConfigMap("kept", "3")
			recorder.expectEvents(t, "added lost=1", "changed kept=2", "changed kept=3")
		})
		require.ErrorContains(t, detector.Start(t.Context()), "its resourceVersion is 3 and was 5")
	})
}

func TestOnlyALowerResourceVersionIsARestore(t *testing.T) {
	for known, want := range map[string]bool{"": false, "0": false, "9": false, "10": false, "11": true, "100": true, "opaque": false} {
		t.Run("known "+known, func(t *testing.T) {
			detector := NewRestoreDetector()
			r := newRecoveryListerWatcher(&flakyListerWatcher{version: "10"}, nil, detector.report)
			for range 2 { // each of several informers detects it
				require.Equal(t, want, r.checkHistory(t.Context(), known) != nil)
			}
			require.Equal(t, want, len(detector.detected) > 0)
		})
	}
}

func TestTheNamespacesWithMostBytesInTheCacheAreReported(t *testing.T) {
	relay := &eventRelay{events: make(chan watch.Event, 100), firstListDone: make(chan struct{}), knownObjects: map[string]knownObject{}}
	configMap := func(namespace int, size int) *corev1.ConfigMap {
		return &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprintf("ns-%02d", namespace), Name: "a"},
			BinaryData: map[string][]byte{"a": make([]byte, size)},
		}
	}
	base := newKnownObject(configMap(1, 0))
	base.release()
	expect := func(after string, sizes map[int]int) {
		t.Helper()
		var want strings.Builder
		fmt.Fprintln(&want, "# HELP yardmaster_cache_namespace_bytes Estimated memory of the cached objects of a namespace, for the ten namespaces with the most.")
		fmt.Fprintln(&want, "# TYPE yardmaster_cache_namespace_bytes gauge")
		for namespace := range 100 {
			if size, found := sizes[namespace]; found {
				fmt.Fprintf(&want, "yardmaster_cache_namespace_bytes{namespace=\"ns-%02d\"} %d\n", namespace, size+base.bytes)
			}
		}
		if len(sizes) == 0 {
			want.Reset()
		}
		err := testutil.CollectAndCompare(cached, strings.NewReader(want.String()), "yardmaster_cache_namespace_bytes")
		require.True(t, err == nil, "after %s: %v", after, err)
	}
	require.NoError(t, errors.Join(relay.Add(configMap(1, 1000)), relay.Add(configMap(2, 2000))))
	expect("creation", map[int]int{1: 1000, 2: 2000})
	require.NoError(t, errors.Join(relay.Update(configMap(1, 10)), relay.Delete(configMap(2, 2000))))
	expect("a change and a deletion", map[int]int{1: 10})
	var list []any
	most := map[int]int{}
	for i := range 30 {
		list = append(list, configMap(i, 10*i))
		if i >= 20 {
			most[i] = 10 * i
		}
	}
	for range 2 { // a list of known objects changes nothing
		require.NoError(t, relay.Replace(list, "1"))
		expect("a list", most)
	}
	relay.releaseAll()
	expect("the end of the informer", map[int]int{})
}
