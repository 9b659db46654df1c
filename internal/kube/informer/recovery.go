package informer

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"

	"github.com/yardmaster/yardmaster/internal/kube/metric"
)

// recoveryDuration has no label for the kind: an outage of the API server affects all kinds.
var recoveryDuration = metric.NewHistogram("yardmaster_watch_recovery_seconds",
	"Time from the first failure to watch a kind until the watch was established again. Most of it is the duration of the API server's outage.",
	.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800)

// recoveryListerWatcher lists and watches, and measures the duration of failures.
type recoveryListerWatcher struct {
	cache.ListerWatcher

	delegate   cache.ListerWatcherWithContext
	onRecovery func(time.Duration)
	// onRestore is called if etcd was restored from a backup. Without onRestore, restores are not detected.
	onRestore func(error)

	mu sync.Mutex
	// failedSince is the time of the first failure; zero after a success.
	failedSince time.Time
}

func newRecoveryListerWatcher(watched cache.ListerWatcher, onRecovery func(time.Duration), onRestore func(error)) *recoveryListerWatcher {
	return &recoveryListerWatcher{ListerWatcher: watched, delegate: cache.ToListerWatcherWithContext(watched), onRecovery: onRecovery, onRestore: onRestore}
}

// IsWatchListSemanticsUnSupported returns the answer of the delegate.
func (r *recoveryListerWatcher) IsWatchListSemanticsUnSupported() bool {
	return watchlist.DoesClientNotSupportWatchListSemantics(r.ListerWatcher)
}

// ListWithContext implements cache.ListerWatcherWithContext. A successful list does not end the failure; only the watch after
// it does.
func (r *recoveryListerWatcher) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if err := r.checkHistory(ctx, options.ResourceVersion); err != nil {
		r.recordFailure(ctx)
		return nil, err
	}
	list, err := r.delegate.ListWithContext(ctx, options)
	if err != nil {
		r.recordFailure(ctx)
	}
	return list, err
}

// WatchWithContext implements cache.ListerWatcherWithContext.
func (r *recoveryListerWatcher) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if err := r.checkHistory(ctx, options.ResourceVersion); err != nil {
		r.recordFailure(ctx)
		return nil, err
	}
	events, err := r.delegate.WatchWithContext(ctx, options)
	if err != nil {
		r.recordFailure(ctx)
		return events, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.failedSince.IsZero() {
		r.onRecovery(time.Since(r.failedSince))
		r.failedSince = time.Time{}
	}
	return drainingWatch{events}, nil
}

func (r *recoveryListerWatcher) recordFailure(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failedSince.IsZero() && ctx.Err() == nil {
		r.failedSince = time.Now()
	}
}

// drainingWatch reads the remaining events of a watch after Stop. A watch that forwards the events of another watch, such as a
// metadata-only watch, otherwise blocks forever on an event that nobody receives and leaks its goroutine. A watch whose
// connection was cut often has such an event.
type drainingWatch struct{ watch.Interface }

// Stop implements watch.Interface.
func (d drainingWatch) Stop() {
	d.Interface.Stop()
	go func() {
		for range d.ResultChan() {
		}
	}()
}
