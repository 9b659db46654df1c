package bulkhead

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/test/require"
)

// testWork is work that runs until it is released, or for a given time.
type testWork struct {
	t        *testing.T
	executor *Executor
	mutex    sync.Mutex
	running  []string
	started  []string
	release  map[string]chan struct{}
}

func newTestWork(t *testing.T, limits Limits) *testWork {
	return &testWork{t: t, executor: NewExecutor(limits), release: map[string]chan struct{}{}}
}

// hang starts work of an object that runs until end is called.
func (w *testWork) hang(namespace, name, peer string) {
	key := namespace + "/" + name
	released := make(chan struct{})
	w.mutex.Lock()
	w.release[key] = released
	w.mutex.Unlock()
	w.executor.Go(types.NamespacedName{Namespace: namespace, Name: name}, peer, func() {
		w.mutex.Lock()
		w.running, w.started = append(w.running, key), append(w.started, key)
		w.mutex.Unlock()
		<-released
		w.mutex.Lock()
		defer w.mutex.Unlock()
		w.running = slices.DeleteFunc(w.running, func(other string) bool { return other == key })
	}, func() {})
}

func (w *testWork) end(keys ...string) {
	for _, key := range keys {
		w.mutex.Lock()
		close(w.release[key])
		w.mutex.Unlock()
		synctest.Wait()
	}
}

func (w *testWork) endAll() {
	synctest.Wait()
	for len(w.nowRunning()) > 0 {
		w.end(w.nowRunning()...)
	}
}

func (w *testWork) nowRunning() []string {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return slices.Sorted(slices.Values(w.running))
}

func (w *testWork) requireRunning(want ...string) {
	w.t.Helper()
	synctest.Wait()
	require.Equal(w.t, slices.Sorted(slices.Values(want)), w.nowRunning())
}

func TestAPeerThatDoesNotAnswerDelaysOnlyWhatDependsOnIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestWork(t, Limits{PerPeer: 2, PerNamespace: 3, Slow: 1, Total: 10})
		for i := range 5 {
			w.hang("a", fmt.Sprint(i), "hanging")
		}
		w.requireRunning("a/0", "a/1")
		w.hang("a", "other", "answering")
		w.requireRunning("a/0", "a/1", "a/other")
		w.end("a/other")
		w.end("a/0")
		w.requireRunning("a/1", "a/2")
		w.endAll()
	})
}

func TestANamespaceWhosePeersDoNotAnswerDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestWork(t, Limits{PerPeer: 1, PerNamespace: 2, Slow: 1, Total: 4})
		for i := range 5 {
			w.hang("a", fmt.Sprint(i), fmt.Sprint(i))
		}
		w.hang("b", "x", "x")
		w.requireRunning("a/0", "a/1", "b/x")
		w.endAll()
	})
}

func TestNamespacesAndPeersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestWork(t, Limits{PerPeer: 1, PerNamespace: 1, Slow: 1, Total: 1})
		for _, key := range [][3]string{
			{"a", "1", "p"}, {"a", "2", "p"}, {"a", "3", "p"}, {"a", "4", "q"}, {"b", "1", "p"}, {"b", "2", "p"}, {"c", "1", "p"},
		} {
			w.hang(key[0], key[1], key[2])
			synctest.Wait()
		}
		w.endAll()
		require.Equal(t, []string{"a/1", "a/2", "b/1", "c/1", "a/4", "b/2", "a/3"}, w.started)
	})
}

func TestWhatWasSlowTheLastTimeDelaysOnlyWhatIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestWork(t, Limits{PerPeer: 2, PerNamespace: 2, Slow: 1, Total: 2})
		for i := range 3 {
			w.hang("a", fmt.Sprint(i), "p")
		}
		time.Sleep(slowAfter + time.Millisecond)
		w.end("a/0", "a/1")
		time.Sleep(slowAfter + time.Millisecond)
		w.end("a/2")
		for i := range 3 {
			w.hang("a", fmt.Sprint(i), "p")
		}
		w.requireRunning("a/0")
		w.hang("a", "quick", "p")
		w.requireRunning("a/0", "a/quick")
		w.end("a/0", "a/1", "a/2", "a/quick")
		w.hang("a", "0", "p")
		w.hang("a", "1", "p")
		w.requireRunning("a/0", "a/1") // both were quick this time
		w.endAll()
	})
}

func TestWorkForAnObjectDoesNotRunTwiceAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		executor := NewExecutor(DefaultLimits())
		object := types.NamespacedName{Namespace: "a", Name: "x"}
		runs, again := 0, make(chan struct{})
		work := func() { runs++; <-again }
		executor.Go(object, "p", work, func() {})
		executor.Go(object, "p", work, func() { t.Error("the second work ended") })
		synctest.Wait()
		close(again)
		synctest.Wait()
		require.Equal(t, 1, runs)
		ended := false
		executor.Go(object, "p", work, func() { ended = true })
		synctest.Wait()
		require.True(t, runs == 2 && ended, "%d runs, want 2; ended: %t", runs, ended)
	})
}

func TestNothingIsStoredWhenAllWorkHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		executor := NewExecutor(Limits{PerPeer: 1, PerNamespace: 2, Slow: 2, Total: 3})
		done := 0
		var mutex sync.Mutex
		for i := range 1000 {
			object := types.NamespacedName{Namespace: fmt.Sprint(i % 7), Name: fmt.Sprint(i)}
			executor.Go(object, fmt.Sprint(i%11), func() {
				time.Sleep(time.Duration(i%3) * time.Millisecond)
				mutex.Lock()
				defer mutex.Unlock()
				done++
			}, func() {})
		}
		executor.finished.Wait()
		require.Equal(t, 1000, done)
		for _, turns := range []*turns{executor.quickTurns, executor.slowTurns} {
			require.True(t, len(turns.namespaces)+len(turns.order)+turns.running == 0, "%+v remains", turns)
		}
		require.True(t, len(executor.active)+len(executor.slow) == 0, "%d objects active, %d slow, want none", len(executor.active), len(executor.slow))
	})
}
