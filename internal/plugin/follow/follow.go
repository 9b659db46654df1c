// Package follow reports the state of objects, and reports it again whenever it changes.
//
// It reports states, not events: changes during an interruption of a watch or the API server appear as one change. It also reports
// interruptions, so that a user understands why a screen does not change.
package follow

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ObjectUpdate is the current state of an object, or the last state of a deleted object.
type ObjectUpdate[T client.Object] struct {
	Object  T
	Deleted bool
}

// ObjectFeed reports objects until its context ends. Its channels are not buffered: while a value waits for its receiver, no further
// change is read.
type ObjectFeed[T client.Object] struct {
	Updates <-chan ObjectUpdate[T]
	// Synced is closed after all objects of the first list have been sent to Updates.
	Synced <-chan struct{}
	// Errors receives the error when listing or watching fails, and nil when it works again.
	Errors <-chan error
}

// StartFeed starts to follow the objects that the options select. list is an empty list of their kind, and object an empty object.
func StartFeed[T client.Object](ctx context.Context, c client.WithWatch, list client.ObjectList, object T, options ...client.ListOption) (*ObjectFeed[T], error) {
	updates, errs := make(chan ObjectUpdate[T]), make(chan error)
	report := func(ctx context.Context, err error) { sendOrDone(ctx, errs, err) }
	informer := cache.NewSharedIndexInformer(NewListWatch(c, list, options, report), object, 0, nil)
	// NewListWatch already reports errors, so the informer must not log them.
	if err := informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}); err != nil {
		return nil, err
	}
	send := func(object any, deleted bool) {
		if last, isLast := object.(cache.DeletedFinalStateUnknown); isLast {
			object = last.Obj
		}
		if seen, isT := object.(T); isT {
			sendOrDone(ctx, updates, ObjectUpdate[T]{Object: seen, Deleted: deleted})
		}
	}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { send(object, false) },
		UpdateFunc: func(_, object any) { send(object, false) },
		DeleteFunc: func(object any) { send(object, true) },
	})
	if err != nil {
		return nil, err
	}
	go informer.RunWithContext(ctx)
	return &ObjectFeed[T]{Updates: updates, Synced: registration.HasSyncedChecker().Done(), Errors: errs}, nil
}

// NewListWatch lists and watches through the client. It reports each error, and nil after the last error.
func NewListWatch(c client.WithWatch, list client.ObjectList, options []client.ListOption, reportError func(context.Context, error)) *cache.ListWatch {
	failing := false
	report := func(ctx context.Context, err error) {
		if err != nil || failing {
			reportError(ctx, err)
		}
		failing = err != nil
	}
	empty := func() client.ObjectList { return list.DeepCopyObject().(client.ObjectList) } //nolint:forcetypeassert // a copy is of the same type
	with := func(raw metav1.ListOptions) []client.ListOption {
		return append(slices.Clip(options), &client.ListOptions{Raw: &raw})
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, raw metav1.ListOptions) (runtime.Object, error) {
			into := empty()
			err := c.List(ctx, into, with(raw)...)
			report(ctx, err)
			return into, err
		},
		WatchFuncWithContext: func(ctx context.Context, raw metav1.ListOptions) (watch.Interface, error) {
			stream, err := c.Watch(ctx, empty(), with(raw)...)
			report(ctx, err)
			return stream, err
		},
	}
}

func sendOrDone[V any](ctx context.Context, to chan<- V, value V) {
	select {
	case to <- value:
	case <-ctx.Done():
	}
}
