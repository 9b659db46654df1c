// Package follow tells how objects stand, and again whenever that changes.
//
// It tells of states, not of events: over a watch that ends, or an API server that is away
// for a while, what happened in between is told as one change. How it gets on meanwhile is
// told too, since whoever looks at a screen that does not change wants to know why.
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

// ObjectUpdate is an object as it is now, or as it last was before it went.
type ObjectUpdate[T client.Object] struct {
	Object  T
	Deleted bool
}

// ObjectFeed tells of objects until its context ends. Sights wait for who is slow to take them;
// while Trouble waits to be taken, nothing new is seen.
type ObjectFeed[T client.Object] struct {
	Updates <-chan ObjectUpdate[T]
	// Synced is closed once all that was there at the beginning has been told.
	Synced <-chan struct{}
	// Errors tells why nothing can be seen at the moment, and nil when it can be again.
	Errors <-chan error
}

// StartFeed begins to follow the objects that the options select. List is an empty list of them.
func StartFeed[T client.Object](ctx context.Context, c client.WithWatch, list client.ObjectList, object T, options ...client.ListOption) (*ObjectFeed[T], error) {
	sights, trouble := make(chan ObjectUpdate[T]), make(chan error)
	informer := cache.NewSharedIndexInformer(newListWatch(c, list, options, trouble), object, 0, nil)
	// The trouble has been told already.
	if err := informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}); err != nil {
		return nil, err
	}
	tell := func(object any, gone bool) {
		if last, isLast := object.(cache.DeletedFinalStateUnknown); isLast {
			object = last.Obj
		}
		if seen, isT := object.(T); isT {
			sendOrDone(ctx, sights, ObjectUpdate[T]{Object: seen, Deleted: gone})
		}
	}
	told, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { tell(object, false) },
		UpdateFunc: func(_, object any) { tell(object, false) },
		DeleteFunc: func(object any) { tell(object, true) },
	})
	if err != nil {
		return nil, err
	}
	go informer.RunWithContext(ctx)
	return &ObjectFeed[T]{Updates: sights, Synced: told.HasSyncedChecker().Done(), Errors: trouble}, nil
}

// newListWatch lists and watches through the client, and tells of trouble and of its end.
func newListWatch(c client.WithWatch, list client.ObjectList, options []client.ListOption, trouble chan<- error) *cache.ListWatch {
	troubled := false
	note := func(ctx context.Context, err error) {
		if err != nil || troubled {
			sendOrDone(ctx, trouble, err)
		}
		troubled = err != nil
	}
	empty := func() client.ObjectList { return list.DeepCopyObject().(client.ObjectList) } //nolint:forcetypeassert // a copy is of the same type
	with := func(raw metav1.ListOptions) []client.ListOption {
		return append(slices.Clip(options), &client.ListOptions{Raw: &raw})
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, raw metav1.ListOptions) (runtime.Object, error) {
			into := empty()
			err := c.List(ctx, into, with(raw)...)
			note(ctx, err)
			return into, err
		},
		WatchFuncWithContext: func(ctx context.Context, raw metav1.ListOptions) (watch.Interface, error) {
			stream, err := c.Watch(ctx, empty(), with(raw)...)
			note(ctx, err)
			return stream, err
		},
	}
}

// sendOrDone hands a value on, unless nobody wants it any more.
func sendOrDone[V any](ctx context.Context, to chan<- V, value V) {
	select {
	case to <- value:
	case <-ctx.Done():
	}
}
