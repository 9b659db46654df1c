package kube

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// AssertFresh returns ErrStale unless the API server has exactly this version of the object. A reconciliation that acts without
// having written the status calls it first: otherwise a stale cache could make it act twice.
func AssertFresh(ctx context.Context, live client.Reader, c client.Client, object client.Object) error {
	kind, err := c.GroupVersionKindFor(object)
	if err != nil {
		return fmt.Errorf("finding the kind of %s: %w", object.GetName(), err)
	}
	current := &metav1.PartialObjectMetadata{}
	current.SetGroupVersionKind(kind)
	if err := live.Get(ctx, client.ObjectKeyFromObject(object), current); err != nil {
		return fmt.Errorf("reading the %s again: %w", kind.Kind, err)
	}
	if versionOf(current) != versionOf(object) {
		return ErrStale
	}
	return nil
}

// version identifies a version of an object.
type version struct {
	uid             types.UID
	resourceVersion string
}

func versionOf(object metav1.Object) version {
	return version{object.GetUID(), object.GetResourceVersion()}
}

const (
	// maxListingAge is far less than the time after which another replica becomes the leader, and acts on the same objects.
	maxListingAge = time.Second
	// maxListed bounds the objects in one answer.
	maxListed = 5000
)

// listings answers AssertFresh for many objects of one kind with one request for each namespace and second.
type listings struct {
	mu sync.Mutex
	of map[string]*listing
}

// listing has the versions of all objects in a namespace, by name.
type listing struct {
	mu       sync.Mutex
	readAt   time.Time
	versions map[string]version // empty if there are more than maxListed
}

// assertFresh is like AssertFresh, except that the version of the object may be that of maxListingAge ago.
func (l *listings) assertFresh(ctx context.Context, clock clock.PassiveClock, live client.Reader, c client.Client, object client.Object) error {
	current, err := l.entry(object.GetNamespace()).find(ctx, clock, live, c, object)
	if err != nil {
		return err
	}
	if current == versionOf(object) {
		return nil
	}
	return AssertFresh(ctx, live, c, object) // it may be newer than the listing
}

// entry returns the listing of a namespace. It forgets all others when there are many.
func (l *listings) entry(namespace string) *listing {
	const maxNamespaces = 20
	l.mu.Lock()
	defer l.mu.Unlock()
	entry := l.of[namespace]
	if entry == nil {
		if len(l.of) >= maxNamespaces || l.of == nil {
			l.of = map[string]*listing{}
		}
		entry = &listing{}
		l.of[namespace] = entry
	}
	return entry
}

// find returns the version of an object, at most maxListingAge old; zero if the listing lacks it.
func (l *listing) find(ctx context.Context, clock clock.PassiveClock, live client.Reader, c client.Client, object client.Object) (version, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := clock.Now()
	if !l.readAt.IsZero() && now.Sub(l.readAt).Abs() < maxListingAge {
		return l.versions[object.GetName()], nil
	}
	kind, err := c.GroupVersionKindFor(object)
	if err != nil {
		return version{}, fmt.Errorf("finding the kind of %s: %w", object.GetName(), err)
	}
	all := &metav1.PartialObjectMetadataList{}
	all.SetGroupVersionKind(kind)
	if err := live.List(ctx, all, client.InNamespace(object.GetNamespace()), client.Limit(maxListed)); err != nil {
		return version{}, fmt.Errorf("listing the %s again: %w", kind.Kind, err)
	}
	l.readAt, l.versions = now, map[string]version{}
	if all.Continue == "" {
		for i := range all.Items {
			l.versions[all.Items[i].Name] = versionOf(&all.Items[i])
		}
	}
	return l.versions[object.GetName()], nil
}
