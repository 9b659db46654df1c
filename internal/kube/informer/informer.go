// Package informer provides a client-go informer that reconnects to the API server within about a second after an outage,
// instead of after client-go's backoff of up to a minute.
package informer

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/yardmaster/yardmaster/internal/clock"
)

// watchRetryInterval is the minimum wait before an informer retries; the maximum is twice as long. It grows only after refusals:
// client-go's backoff grows to a minute, so that the operator would miss events for most of a minute after the API server is
// available again. Two waits follow each other if a watch must start with a new list.
const watchRetryInterval = 300 * time.Millisecond

// maxRefusedInterval is the maximum wait of an informer that the API server refuses; with jitter, twice as long.
const maxRefusedInterval = 30 * time.Second

// NewInformer returns an informer that recovers about a second after an outage of the API server, however long the outage was.
// It is for cache.Options.NewInformer.
//
// The backoff of a client-go Reflector is configurable, the backoff of an informer is not. Therefore a separate Reflector
// watches the API server and relays its events to a client-go informer, which sees a watch that never ends. Delete this package
// when informers accept the backoff as an option: kubernetes/kubernetes#136943.
func NewInformer(watched cache.ListerWatcher, object runtime.Object, resync time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
	return newInformer(watched, object, resync, indexers, nil)
}

func newInformer(watched cache.ListerWatcher, object runtime.Object, resync time.Duration, indexers cache.Indexers, onRestore func(error)) cache.SharedIndexInformer {
	recordRecovery := func(took time.Duration) { recoveryDuration.Observe(took.Seconds()) }
	source := newRecoveryListerWatcher(watched, recordRecovery, onRestore)
	relay := &eventRelay{firstListDone: make(chan struct{}), events: make(chan watch.Event), knownObjects: map[string]knownObject{}}
	return &recoveringInformer{
		SharedIndexInformer: cache.NewSharedIndexInformer(relay, object, resync, indexers),
		relay:               relay,
		access:              source.access,
		reflector: cache.NewReflectorWithOptions(source, object, relay, cache.ReflectorOptions{
			Backoff: &wait.Backoff{Duration: watchRetryInterval, Jitter: 1}, // between two attempts to watch
		}),
		handleWatchError: cache.DefaultWatchErrorHandler,
	}
}

type recoveringInformer struct {
	cache.SharedIndexInformer

	relay     *eventRelay
	access    *access
	reflector *cache.Reflector
	// handleWatchError receives the errors of list and watch.
	handleWatchError cache.WatchErrorHandlerWithContext
}

// Run implements cache.SharedIndexInformer.
func (i *recoveringInformer) Run(stop <-chan struct{}) {
	i.RunWithContext(wait.ContextForChannel(stop))
}

// RunWithContext implements cache.SharedIndexInformer.
func (i *recoveringInformer) RunWithContext(ctx context.Context) {
	i.relay.done = ctx.Done()
	defer i.relay.releaseAll()
	informers.add(i.access)
	defer informers.remove(i.access)
	var reflecting wait.Group
	defer reflecting.Wait()
	reflecting.StartWithContext(ctx, i.listAndWatchUntilDone)
	i.SharedIndexInformer.RunWithContext(ctx)
}

// listAndWatchUntilDone lists and watches until ctx ends. It reports only the first of consecutive failures, and the first refusal:
// each informer fails several times a second. A refusal ends only when somebody changes a permission, so that the wait grows: there
// may be hundreds of namespaces.
func (i *recoveringInformer) listAndWatchUntilDone(ctx context.Context) {
	initial := wait.Backoff{Duration: watchRetryInterval, Factor: 2, Jitter: 1, Steps: 10, Cap: maxRefusedInterval}
	backoff, report, wasRefused := initial, true, false
	for ctx.Err() == nil {
		listsBefore := i.relay.listCount
		err := i.reflector.ListAndWatchWithContext(ctx)
		_, refusal := i.access.last()
		// A list may have succeeded in between.
		report = report || i.relay.listCount > listsBefore || refusal != nil && !wasRefused
		if err != nil && report && ctx.Err() == nil {
			i.handleWatchError(ctx, i.reflector, err)
			report = false
		}
		if wasRefused = refusal != nil; !wasRefused {
			backoff = initial
		}
		_ = clock.SleepContext(ctx, backoff.Step()) // the loop ends with ctx
	}
}

// LastSyncResourceVersion implements cache.SharedIndexInformer.
func (i *recoveringInformer) LastSyncResourceVersion() string {
	return i.reflector.LastSyncResourceVersion()
}

// SetTransform implements cache.SharedIndexInformer. Objects are transformed before they are relayed, so that no object is kept
// in two forms.
func (i *recoveringInformer) SetTransform(transform cache.TransformFunc) error {
	i.relay.transform = transform
	return nil
}

// SetWatchErrorHandler implements cache.SharedIndexInformer.
func (i *recoveringInformer) SetWatchErrorHandler(handler cache.WatchErrorHandler) error {
	return i.SetWatchErrorHandlerWithContext(func(_ context.Context, r *cache.Reflector, err error) { handler(r, err) })
}

// SetWatchErrorHandlerWithContext implements cache.SharedIndexInformer.
func (i *recoveringInformer) SetWatchErrorHandlerWithContext(handler cache.WatchErrorHandlerWithContext) error {
	i.handleWatchError = handler
	return nil
}
