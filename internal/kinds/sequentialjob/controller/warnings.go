package controller

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/types"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// All steps of a namespace that wait share a list of its warnings for this time. Lists are made at this rate per second, because the
	// API server reads all events of the namespace for each.
	warningsAge      = 2 * time.Second
	warningListRate  = 2
	warningListBurst = 20
	// A list has at most this many pages of this many warnings, and lists of this many namespaces are kept: 16 MB, because the API server
	// limits a message to 1 kB.
	warningPages, warningsOfPage, warningNamespaces = 2, 500, 16
)

// warningReader reads the warnings about objects that do not start.
type warningReader struct {
	live    client.Reader
	limiter *rate.Limiter
	lists   *utilcache.LRUExpireCache
	reads   singleflight.Group
}

func newWarningReader(live client.Reader) *warningReader {
	return &warningReader{
		live: live, limiter: rate.NewLimiter(warningListRate, warningListBurst),
		lists: utilcache.NewLRUExpireCache(warningNamespaces),
	}
}

// warnings are the newest warning about each object.
type warnings struct {
	newest map[types.UID]warning
	// isCutOff is true if there are more than a list may have.
	isCutOff bool
}

type warning struct {
	message string
	at      time.Time
}

// newest returns the newest warning about an object, at most warningsAge old. It is empty beyond the rate limit; the core asks again
// later.
func (r *warningReader) newest(ctx context.Context, namespace string, uid types.UID) (string, error) {
	shared, err, _ := r.reads.Do(namespace, func() (any, error) {
		if list, found := r.lists.Get(namespace); found {
			return list, nil
		}
		list, err := r.list(ctx, namespace, client.MatchingFields{"type": corev1.EventTypeWarning})
		if err == nil && list != nil {
			r.lists.Add(namespace, list, warningsAge)
		}
		return list, err
	})
	list, _ := shared.(*warnings)
	if err != nil || list == nil {
		return "", err
	}
	if _, found := list.newest[uid]; !found && list.isCutOff {
		list, err = r.list(ctx, namespace, client.MatchingFields{"type": corev1.EventTypeWarning, "regarding.uid": string(uid)})
		if err != nil || list == nil {
			return "", err
		}
	}
	return list.newest[uid].message, nil
}

// list returns nil beyond the rate limit.
func (r *warningReader) list(ctx context.Context, namespace string, fields client.MatchingFields) (*warnings, error) {
	if !r.limiter.Allow() {
		return nil, nil
	}
	read := &warnings{newest: map[types.UID]warning{}}
	token := client.Continue("")
	for range warningPages {
		var page eventsv1.EventList
		if err := r.live.List(ctx, &page, client.InNamespace(namespace), fields, client.Limit(warningsOfPage), token); err != nil {
			return nil, fmt.Errorf("listing events: %w", err)
		}
		for i := range page.Items {
			event := &page.Items[i]
			if at := lastObserved(event); !at.Before(read.newest[event.Regarding.UID].at) {
				read.newest[event.Regarding.UID] = warning{event.Note, at}
			}
		}
		token = client.Continue(page.Continue)
		if token == "" {
			break
		}
	}
	read.isCutOff = token != ""
	return read, nil
}

func lastObserved(e *eventsv1.Event) time.Time {
	switch {
	case e.Series != nil:
		return e.Series.LastObservedTime.Time
	case !e.EventTime.IsZero():
		return e.EventTime.Time
	default:
		return e.DeprecatedLastTimestamp.Time
	}
}
