package watch

import (
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/ui/view"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func TestMain(m *testing.M) {
	// The fake client does not end a list that is a watch.
	os.Setenv("KUBE_FEATURE_WatchListClient", "false")
	os.Exit(m.Run())
}

var deniedNamespaces = []string{"denied"}

// runStore runs a store in the bubble of a test, in which time passes only while all goroutines wait.
func runStore(t *testing.T, scope view.Scope, list func(client.ObjectList) error, objects ...client.Object) (*Store, client.WithWatch, context.CancelFunc) {
	scheme := runtime.NewScheme()
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	c := interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, into client.ObjectList, options ...client.ListOption) error {
			selected := (&client.ListOptions{}).ApplyOptions(options)
			if slices.Contains(deniedNamespaces, selected.Namespace) {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "sequentialjobs"}, "", errors.New("no"))
			}
			if err := list(into); err != nil {
				return err
			}
			return c.List(ctx, into, options...)
		},
	})
	s := NewStore(scope, time.Now)
	ctx, stop := context.WithCancel(t.Context())
	go s.Run(ctx, c)
	return s, c, stop
}

func TestStoreFollowsObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c, stop := runStore(t, view.Scope{}, func(client.ObjectList) error { return nil }, testbuilder.SequentialJob("etl", "a").Obj())
		defer stop()
		time.Sleep(time.Second)
		changed, unsubscribe := s.Subscribe()
		defer unsubscribe()
		require.NoError(t, c.Create(t.Context(), testbuilder.SequentialJob("backup", "a").Obj()))
		<-changed
		entries := s.Snapshot().Entries[view.Sequences]
		require.True(t, len(entries) == 2, "%d sequences", len(entries))
		require.NoError(t, c.Delete(t.Context(), testbuilder.SequentialJob("etl", "a").Obj()))
		<-changed
		entry, _ := s.Get(view.Sequences, "a", "etl")
		require.True(t, entry == nil, "the deleted sequence is still known")
	})
}

func TestStoreFollowsSeveralNamespacesAndLabels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		labeled := func(name, ns, team string) client.Object {
			sj := testbuilder.SequentialJob(name, ns).Obj()
			sj.Labels = map[string]string{"team": team}
			return sj
		}
		scope := view.Scope{Namespaces: []string{"a", "b", "denied"}, Selector: labels.SelectorFromSet(labels.Set{"team": "data"})}
		s, c, stop := runStore(t, scope, func(client.ObjectList) error { return nil },
			labeled("etl", "a", "data"), labeled("web", "a", "web"), labeled("etl", "b", "data"), labeled("etl", "c", "data"), labeled("etl", "denied", "data"))
		defer stop()
		time.Sleep(time.Second)
		names := func() string {
			var all []string
			for _, e := range s.Snapshot().Entries[view.Sequences] {
				all = append(all, e.Namespace+"/"+e.Name)
			}
			slices.Sort(all)
			return strings.Join(all, " ")
		}
		require.Equal(t, "a/etl b/etl", names())
		state := s.Snapshot().Watches[view.Sequences]
		require.True(t, !state.Denied && state.Problem == "not permitted to list sequentialjobs in namespace denied", "%+v", state)
		_, one := s.Get(view.Sequences, "denied", "etl")
		require.True(t, one.Denied, "state of the namespace: %+v", one)
		time.Sleep(time.Minute) // the watch of one namespace starts again, and the objects of the others stay
		require.NoError(t, c.Delete(t.Context(), labeled("etl", "b", "data")))
		time.Sleep(time.Second)
		require.Equal(t, "a/etl", names())
	})
}

func TestStoreSaysWhatTheUserMayNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, stop := runStore(t, view.Scope{}, func(list client.ObjectList) error {
			if _, isQueues := list.(*v1alpha1.QueueList); isQueues {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "queues"}, "", errors.New("no"))
			}
			return nil
		})
		defer stop()
		time.Sleep(time.Second)
		state := s.Snapshot()
		queues := state.Watches[view.Queues]
		require.True(t, queues.Denied && strings.HasPrefix(queues.Problem, "not permitted to list queues"), "queues: %+v", queues)
		pools := state.Watches[view.Pools]
		require.True(t, !pools.Denied && pools.Synced, "pools: %+v", pools)
	})
}

func TestStoreKeepsObjectsDuringAnOutageAndRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failing atomic.Bool
		failing.Store(true)
		s, _, stop := runStore(t, view.Scope{}, func(client.ObjectList) error {
			if failing.Load() {
				return errors.New("connection refused\x1b")
			}
			return nil
		}, testbuilder.SequentialJob("etl", "a").Obj())
		defer stop()
		time.Sleep(time.Minute)
		during := s.Snapshot().Watches[view.Sequences]
		require.True(t, strings.Contains(during.Problem, "connection refused\uFFFD") && time.Since(during.Lost) >= 50*time.Second, "%+v", during)
		failing.Store(false)
		time.Sleep(3 * retryInterval)
		state := s.Snapshot()
		require.True(t, len(state.Entries[view.Sequences]) == 1 && state.Watches[view.Sequences].Problem == "", "%+v", state)
	})
}

func TestHistoryIsBounded(t *testing.T) {
	s := NewStore(view.Scope{}, time.Now)
	k := &kindStore{Store: s, watchedPlace: watchedPlace{kind: view.Queues}}
	now := time.Now()
	s.now = func() time.Time { return now }
	for i := range maxHistories + 10 {
		q := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "q" + strconv.Itoa(i)}}
		for range maxSamples + 10 {
			now = now.Add(sampleInterval)
			require.NoError(t, k.Update(q))
		}
	}
	require.Equal(t, maxHistories, len(s.history))
	for key, samples := range s.history {
		require.True(t, len(samples) <= maxSamples, "%v has %d samples", key, len(samples))
	}
}

func TestHistoryOfAFastChangeKeepsTheLastValue(t *testing.T) {
	s := NewStore(view.Scope{}, time.Now)
	now := time.Now()
	s.now = func() time.Time { return now }
	k := &kindStore{Store: s, watchedPlace: watchedPlace{kind: view.Queues}}
	for i := range int64(100) {
		now = now.Add(100 * time.Millisecond)
		q := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Status: v1alpha1.QueueStatus{MessageCounts: v1alpha1.MessageCounts{Backlog: &i}}}
		require.NoError(t, k.Update(q))
	}
	entry, _ := s.Get(view.Queues, "", "q")
	samples := s.History(entry)
	last := samples[len(samples)-1]
	require.True(t, len(samples) <= 5 && *last.Backlog == 99, "%d samples, the last is %v", len(samples), *last.Backlog)
}

func TestTheRunsBeforeARerunAreRemembered(t *testing.T) {
	s := NewStore(view.Scope{}, time.Now)
	k := &kindStore{Store: s, watchedPlace: watchedPlace{kind: view.Sequences}}
	const last = maxSeenRuns + 5
	for run := range int32(last) {
		sj := testbuilder.SequentialJob("etl", "a").Obj()
		sj.Status.Run, sj.Status.StartTime, sj.Status.CompletionTime = run+1, new(metav1.Now()), new(metav1.Now())
		require.NoError(t, k.Update(sj))
	}
	entry, _ := s.Get(view.Sequences, "a", "etl")
	runs := s.Snapshot().Runs(view.SeriesOf(entry))
	require.Equal(t, maxSeenRuns+1, len(runs))
	require.True(t, runs[0].Number == last && !runs[0].IsGone && runs[1].Number == last-1 && runs[1].IsGone, "%+v", runs)
	require.NoError(t, k.Delete(testbuilder.SequentialJob("etl", "a").Obj()))
	require.Equal(t, 0, len(s.seen))
}
