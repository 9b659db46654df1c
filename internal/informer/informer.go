package informer

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
)

// watchRetry is the least wait before the API server is asked again by an informer that has
// lost it, and twice that the most. It does not grow: client-go's own grows to a minute, and
// then an operator is blind for most of a minute after the API server is back. There are two
// such waits in a row when a watch has to begin with a new list.
const watchRetry = 300 * time.Millisecond

// NewInformer is an informer that finds its way back to the API server in about a second,
// however long that was away. It is for cache.Options.NewInformer.
//
// client-go's informer cannot be told how long to wait, but its Reflector can. So there are
// two of them: one of ours watches the API server, and what it sees is passed on to an
// informer of client-go's, for which it looks like a watch that never ends. This can go when
// informers take the wait as an option: kubernetes/kubernetes#136943.
func NewInformer(watched cache.ListerWatcher, object runtime.Object, resync time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
	through := newRelay()
	return &informer{
		SharedIndexInformer: cache.NewSharedIndexInformer(through, object, resync, indexers),
		relay:               through,
		reflector: cache.NewReflectorWithOptions(newRecovering(watched, tellRecovery), object, through, cache.ReflectorOptions{
			Backoff: &wait.Backoff{Duration: watchRetry, Jitter: 1}, // between two tries of a watch
		}),
		failed: cache.DefaultWatchErrorHandler,
	}
}

func tellRecovery(took time.Duration) { recoverySeconds.Observe(took.Seconds()) }

type informer struct {
	cache.SharedIndexInformer

	relay     *relay
	reflector *cache.Reflector
	// failed is told why nothing can be watched.
	failed cache.WatchErrorHandlerWithContext
}

// Run implements cache.SharedIndexInformer.
func (i *informer) Run(stop <-chan struct{}) { i.RunWithContext(wait.ContextForChannel(stop)) }

// RunWithContext implements cache.SharedIndexInformer.
func (i *informer) RunWithContext(ctx context.Context) {
	i.relay.done = ctx.Done()
	var reflecting wait.Group
	defer reflecting.Wait()
	reflecting.StartWithContext(ctx, i.reflect)
	i.SharedIndexInformer.RunWithContext(ctx)
}

// reflect lists and watches, again and again. Of failures in a row only the first is told:
// they come with each informer, several times a second.
func (i *informer) reflect(ctx context.Context) {
	const jitter = 1
	telling := true
	wait.JitterUntilWithContext(ctx, func(ctx context.Context) {
		lists := i.relay.lists
		err := i.reflector.ListAndWatchWithContext(ctx)
		telling = telling || i.relay.lists > lists // it was well in between
		if err != nil && telling && ctx.Err() == nil {
			i.failed(ctx, i.reflector, err)
			telling = false
		}
	}, watchRetry, jitter, true)
}

// LastSyncResourceVersion implements cache.SharedIndexInformer.
func (i *informer) LastSyncResourceVersion() string { return i.reflector.LastSyncResourceVersion() }

// SetTransform implements cache.SharedIndexInformer. Objects are transformed before they
// are passed on, so that none is kept in two forms.
func (i *informer) SetTransform(transform cache.TransformFunc) error {
	i.relay.transform = transform
	return nil
}

// SetWatchErrorHandler implements cache.SharedIndexInformer.
func (i *informer) SetWatchErrorHandler(handler cache.WatchErrorHandler) error {
	return i.SetWatchErrorHandlerWithContext(func(_ context.Context, r *cache.Reflector, err error) { handler(r, err) })
}

// SetWatchErrorHandlerWithContext implements cache.SharedIndexInformer.
func (i *informer) SetWatchErrorHandlerWithContext(handler cache.WatchErrorHandlerWithContext) error {
	i.failed = handler
	return nil
}
