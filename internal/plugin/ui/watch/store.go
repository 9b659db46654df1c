// Package watch keeps the objects of the pages up to date: all kinds in some or all namespaces, as far as the user may read them.
package watch

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/follow"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
	"github.com/yardmaster/yardmaster/internal/plugin/ui/view"
)

// Store holds the objects.
type Store struct {
	scope view.Scope
	now   func() time.Time

	mu      sync.RWMutex
	objects map[*view.Kind]map[types.NamespacedName]*view.Entry
	watches map[watchedPlace]view.WatchState
	history history
	seen    map[view.SeriesKey][]view.Run
	changed map[chan struct{}]bool
}

// watchedPlace is the subject of a watch: a kind in a namespace, or in all namespaces if it is empty.
type watchedPlace struct {
	kind      *view.Kind
	namespace string
}

// NewStore returns a store of the objects of a scope.
func NewStore(scope view.Scope, now func() time.Time) *Store {
	s := &Store{
		scope: scope, now: now, objects: map[*view.Kind]map[types.NamespacedName]*view.Entry{}, watches: map[watchedPlace]view.WatchState{},
		history: history{}, seen: map[view.SeriesKey][]view.Run{}, changed: map[chan struct{}]bool{},
	}
	for _, kind := range view.Kinds {
		s.objects[kind] = map[types.NamespacedName]*view.Entry{}
	}
	return s
}

var watched = map[*view.Kind]struct {
	object client.Object
	list   client.ObjectList
}{
	view.Sequences: {&v1alpha1.SequentialJob{}, &v1alpha1.SequentialJobList{}},
	view.Sessions:  {&v1alpha1.AgenticSession{}, &v1alpha1.AgenticSessionList{}},
	view.Queues:    {&v1alpha1.Queue{}, &v1alpha1.QueueList{}},
	view.Pools:     {&v1alpha1.WorkerPool{}, &v1alpha1.WorkerPoolList{}},
	view.Schedules: {&v1alpha1.Schedule{}, &v1alpha1.ScheduleList{}},
}

// The wait before a failed watch is tried again; it does not grow, because a user waits for it. A missing permission or kind changes
// rarely.
const (
	retryInterval       = 500 * time.Millisecond
	deniedRetryInterval = 30 * time.Second
)

// Run watches the objects until ctx ends.
func (s *Store) Run(ctx context.Context, c client.WithWatch) {
	var watches wait.Group
	for _, kind := range view.Kinds {
		for _, place := range s.placesOf(kind) {
			watches.StartWithContext(ctx, func(ctx context.Context) { s.watch(ctx, c, place) })
		}
	}
	watches.Wait()
}

// placesOf returns the watched places of a kind.
func (s *Store) placesOf(kind *view.Kind) []watchedPlace {
	if len(s.scope.Namespaces) == 0 {
		return []watchedPlace{{kind, ""}}
	}
	var places []watchedPlace
	for _, namespace := range s.scope.Namespaces {
		places = append(places, watchedPlace{kind, namespace})
	}
	return places
}

func (s *Store) watch(ctx context.Context, c client.WithWatch, place watchedPlace) {
	options := []client.ListOption{client.InNamespace(place.namespace)}
	if s.scope.Selector != nil {
		options = append(options, client.MatchingLabelsSelector{Selector: s.scope.Selector})
	}
	report := func(_ context.Context, err error) { s.setError(place, err) }
	reflector := cache.NewReflectorWithOptions(follow.NewListWatch(c, watched[place.kind].list, options, report), watched[place.kind].object, &kindStore{s, place},
		cache.ReflectorOptions{Backoff: &wait.Backoff{Duration: retryInterval, Jitter: 1}})
	reflector.WatchListPageSize = 500 // pages of a list are released one by one
	for ctx.Err() == nil {
		pause := retryInterval
		if err := reflector.ListAndWatchWithContext(ctx); err != nil && ctx.Err() == nil {
			s.setError(place, err)
		}
		s.mu.RLock()
		if s.watches[place].Denied {
			pause = deniedRetryInterval
		}
		s.mu.RUnlock()
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// forget removes the objects of a place. The caller holds the lock.
func (s *Store) forget(place watchedPlace) {
	maps.DeleteFunc(s.objects[place.kind], func(key types.NamespacedName, _ *view.Entry) bool {
		return place.namespace == "" || key.Namespace == place.namespace
	})
}

// setError records why a kind cannot be read; nil when it can be read again.
func (s *Store) setError(place watchedPlace, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state, kind := s.watches[place], place.kind
	state.Denied = apierrors.IsForbidden(err)
	switch {
	case err == nil:
		state.Problem, state.Lost = "", time.Time{}
	case state.Denied:
		where := " in namespace " + place.namespace
		if place.namespace == "" {
			where = " in all namespaces; choose some with -n"
		}
		state.Problem, state.Lost = "not permitted to list "+kind.Resource+where, time.Time{}
		s.forget(place)
	case meta.IsNoMatchError(err) || apierrors.IsNotFound(err):
		state.Denied = true
		state.Problem = "this cluster has no " + kind.Resource + ": Yardmaster is not installed, or is an older version"
	default:
		if state.Lost.IsZero() {
			state.Lost = s.now()
		}
		state.Problem = "connection lost: " + terminal.Sanitize(err.Error())
	}
	s.watches[place] = state
	s.notify()
}

// Snapshot returns all that is known about the cluster.
func (s *Store) Snapshot() *view.State {
	s.mu.RLock()
	defer s.mu.RUnlock()
	state := &view.State{Scope: s.scope, Entries: map[*view.Kind][]*view.Entry{}, Watches: map[*view.Kind]view.WatchState{}, Seen: maps.Clone(s.seen), History: s.History}
	for kind, objects := range s.objects {
		state.Entries[kind], state.Watches[kind] = slices.Collect(maps.Values(objects)), s.stateOf(kind)
	}
	return state
}

// Get returns an object, or nil, and whether its kind can be read.
func (s *Store) Get(kind *view.Kind, namespace, name string) (*view.Entry, view.WatchState) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	place := watchedPlace{kind, namespace}
	if len(s.scope.Namespaces) == 0 {
		place.namespace = ""
	}
	state := s.watches[place]
	if !s.scope.Contains(namespace) {
		state = s.stateOf(kind)
	}
	return s.objects[kind][types.NamespacedName{Namespace: namespace, Name: name}], state
}

// stateOf returns whether a kind can be read. The caller holds the lock.
func (s *Store) stateOf(kind *view.Kind) view.WatchState {
	var states []view.WatchState
	for _, place := range s.placesOf(kind) {
		states = append(states, s.watches[place])
	}
	return view.MergeStates(states)
}

// Scope returns the scope of the store.
func (s *Store) Scope() *view.Scope { return &s.scope }

// Subscribe returns a channel that has a value after a change, until stop is called.
func (s *Store) Subscribe() (changed <-chan struct{}, stop func()) {
	channel := make(chan struct{}, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed[channel] = true
	return channel, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.changed, channel)
	}
}

// Notify wakes all subscribers after a change of other data than the objects.
func (s *Store) Notify() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notify()
}

// notify wakes all subscribers. The caller holds the lock.
func (s *Store) notify() {
	for channel := range s.changed {
		select {
		case channel <- struct{}{}:
		default: // it has not received the previous change yet
		}
	}
}

type kindStore struct {
	*Store
	watchedPlace
}

var _ cache.TransformingStore = &kindStore{}

// Transformer implements cache.TransformingStore: the reflector slims the objects of a list while it reads it.
func (*kindStore) Transformer() cache.TransformFunc {
	return func(object any) (any, error) {
		view.Slim(object)
		return object, nil
	}
}

// Add implements cache.ReflectorStore.
func (k *kindStore) Add(object any) error { return k.Update(object) }

// Update implements cache.ReflectorStore.
func (k *kindStore) Update(object any) error {
	view.Slim(object)
	entry := view.NewEntry(object)
	if entry == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.put(entry)
	k.notify()
	return nil
}

// put stores an object. The caller holds the lock.
func (k *kindStore) put(entry *view.Entry) {
	key := types.NamespacedName{Namespace: entry.Namespace, Name: entry.Name}
	if before := k.objects[k.kind][key]; before != nil {
		last, isRun := view.NewRun(before)
		if now, _ := view.NewRun(entry); isRun && now.Number != last.Number {
			k.remember(last)
		}
	}
	k.objects[k.kind][key] = entry
	k.history.add(k.kind, key, entry.Object, k.now())
}

// Delete implements cache.ReflectorStore.
func (k *kindStore) Delete(object any) error {
	seen, ok := object.(client.Object)
	if !ok {
		return nil
	}
	key := client.ObjectKeyFromObject(seen)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.remove(key)
	k.notify()
	return nil
}

// remove forgets an object, but not what it was as a run of a Schedule. The caller holds the lock.
func (k *kindStore) remove(key types.NamespacedName) {
	if entry := k.objects[k.kind][key]; entry != nil {
		delete(k.seen, view.SeriesKey{Kind: k.kind, Namespace: key.Namespace, Name: key.Name, UID: entry.Object.(client.Object).GetUID()}) //nolint:forcetypeassert // the store has nothing else
		if run, isRun := view.NewRun(entry); isRun && view.SeriesOf(entry).Kind == view.Schedules {
			k.remember(run)
		}
	}
	delete(k.objects[k.kind], key)
	delete(k.history, historyKey{k.kind, key})
}

// The limits of the runs that no object shows any more.
const (
	maxSeenSeries = 300
	maxSeenRuns   = 30
)

// remember keeps a run that has ended. The caller holds the lock.
func (s *Store) remember(run view.Run) {
	key := view.SeriesOf(run.Entry)
	runs, isKnown := s.seen[key]
	if run.Finish.IsZero() || !isKnown && len(s.seen) >= maxSeenSeries {
		return
	}
	entry := *run.Entry
	entry.Object = nil // most of its memory
	run.Entry, run.IsGone = &entry, true
	s.seen[key] = append([]view.Run{run}, runs[:min(len(runs), maxSeenRuns-1)]...)
}

// Replace implements cache.ReflectorStore.
func (k *kindStore) Replace(objects []any, _ string) error {
	var entries []*view.Entry
	for _, object := range objects {
		view.Slim(object)
		if entry := view.NewEntry(object); entry != nil {
			entries = append(entries, entry)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	exists := map[types.NamespacedName]bool{}
	for _, entry := range entries {
		exists[types.NamespacedName{Namespace: entry.Namespace, Name: entry.Name}] = true
		k.put(entry)
	}
	for key := range k.objects[k.kind] {
		if !exists[key] && (k.namespace == "" || k.namespace == key.Namespace) {
			k.remove(key)
		}
	}
	k.watches[k.watchedPlace] = view.WatchState{Synced: true} // a list succeeded, so there is no problem any more
	k.notify()
	return nil
}

// Resync implements cache.ReflectorStore.
func (*kindStore) Resync() error { return nil }

// The limits of the history, which is at most 10 MB.
const (
	maxHistories   = 300
	maxSamples     = 360
	sampleInterval = 5 * time.Second
)

type historyKey struct {
	kind *view.Kind
	types.NamespacedName
}

// history holds the load of the first maxHistories Queues and WorkerPools since the command started.
type history map[historyKey][]view.Sample

// add records the load of an object. Within sampleInterval, the new value replaces the previous value.
func (h history) add(kind *view.Kind, name types.NamespacedName, object any, now time.Time) {
	sample := view.NewSample(object, now)
	key := historyKey{kind, name}
	samples, known := h[key]
	if sample == nil || !known && len(h) >= maxHistories {
		return
	}
	if n := len(samples); n > 1 && now.Sub(samples[n-2].Time) < sampleInterval {
		samples[n-1] = *sample
		return
	}
	if len(samples) == maxSamples {
		samples = slices.Delete(samples, 0, 1)
	}
	h[key] = append(samples, *sample)
}

// History returns the load of a Queue or WorkerPool until now.
func (s *Store) History(entry *view.Entry) []view.Sample {
	s.mu.RLock()
	defer s.mu.RUnlock()
	samples := slices.Clone(s.history[historyKey{entry.Kind, types.NamespacedName{Namespace: entry.Namespace, Name: entry.Name}}])
	if n := len(samples); n > 0 {
		last := samples[n-1]
		last.Time = s.now().Truncate(sampleInterval)
		if last.Time.After(samples[n-1].Time) {
			samples = append(samples, last)
		}
	}
	return samples
}
