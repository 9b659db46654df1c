package bulkhead

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Observer observes peers in the background. A reconciliation calls Observe: it gets the result of the observation that an
// earlier reconciliation started, or starts an observation, whose end enqueues the object. Each result is used once. So a
// reconciliation decides on peers that were observed after all actions of earlier reconciliations.
type Observer[T any] struct {
	executor *Executor

	mutex   sync.Mutex
	results map[types.NamespacedName]result[T]
	queue   Queue
}

// Queue is a controller's queue that can keep the backoff of an object.
type Queue interface {
	Add(request reconcile.Request)
	// KeepBackoff makes the next call of Forget have no effect.
	KeepBackoff(request reconcile.Request)
}

type result[T any] struct {
	subject     string
	observation T
	err         error
	panicked    string // the reason and the stack
}

// NewObserver returns an Observer that runs observations within the limits. It is a Runnable of the manager.
func NewObserver[T any](limits Limits) *Observer[T] {
	return &Observer[T]{executor: NewExecutor(limits), results: map[types.NamespacedName]result[T]{}}
}

// Start waits until all observations have ended when ctx ends. It implements manager.Runnable.
func (o *Observer[T]) Start(ctx context.Context) error { return o.executor.Start(ctx) }

// EnqueueTo sets the controller's queue, which must be a Queue and receives objects when their observation has ended. It is a
// source.Func of that controller.
func (o *Observer[T]) EnqueueTo(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	kept, ok := queue.(Queue)
	if !ok {
		return fmt.Errorf("the queue is a %T, which does not keep the backoff of objects that are being observed", queue)
	}
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.queue = kept
	return nil
}

// Observe returns the result of an observation with the same subject, which identifies everything that observe depends on.
// Without a result it starts an observation, and found is false. The peer may not answer. observe may run after Observe has
// returned, and must limit its own time.
func (o *Observer[T]) Observe(
	ctx context.Context, object types.NamespacedName, subject, peer string, observe func(context.Context) (T, error),
) (observation T, found bool, err error) {
	if last, ended := o.take(object); ended && last.subject == subject {
		if last.panicked != "" {
			panic(last.panicked) // controller-runtime reports it
		}
		return last.observation, true, last.err
	}
	// A reconciliation that ends without an error must not count as a success, which would reset the backoff of an object that
	// fails each time.
	o.queue.KeepBackoff(reconcile.Request{NamespacedName: object})
	work := func() {
		next := result[T]{subject: subject}
		defer func() {
			if reason := recover(); reason != nil {
				next.panicked = fmt.Sprintf("%v\n%s", reason, debug.Stack())
			}
			o.mutex.Lock()
			defer o.mutex.Unlock()
			o.results[object] = next
		}()
		next.observation, next.err = observe(ctx)
	}
	o.executor.Go(object, peer, work, func() { o.queue.Add(reconcile.Request{NamespacedName: object}) })
	return observation, false, nil
}

// Forget drops the observation of an object that no longer exists.
func (o *Observer[T]) Forget(object types.NamespacedName) {
	o.take(object)
	o.executor.Forget(object)
}

func (o *Observer[T]) take(object types.NamespacedName) (result[T], bool) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	last, found := o.results[object]
	delete(o.results, object)
	return last, found
}
