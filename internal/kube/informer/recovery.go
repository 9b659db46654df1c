package informer

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
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
	access    *access

	mu sync.Mutex
	// failedSince is the time of the first failure; zero after a success.
	failedSince time.Time
}

func newRecoveryListerWatcher(watched cache.ListerWatcher, onRecovery func(time.Duration), onRestore func(error)) *recoveryListerWatcher {
	return &recoveryListerWatcher{
		ListerWatcher: watched, delegate: cache.ToListerWatcherWithContext(watched), onRecovery: onRecovery, onRestore: onRestore, access: &access{},
	}
}

// IsWatchListSemanticsUnSupported returns the answer of the delegate.
func (r *recoveryListerWatcher) IsWatchListSemanticsUnSupported() bool {
	return watchlist.DoesClientNotSupportWatchListSemantics(r.ListerWatcher)
}

// ListWithContext implements cache.ListerWatcherWithContext. A successful list does not end the failure; only the watch after
// it does.
func (r *recoveryListerWatcher) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	ctx = r.withAccess(ctx)
	if err := r.checkHistory(ctx, options.ResourceVersion); err != nil {
		r.recordFailure(ctx, err)
		return nil, err
	}
	list, err := r.delegate.ListWithContext(ctx, options)
	if err != nil {
		r.recordFailure(ctx, err)
	}
	return list, err
}

// WatchWithContext implements cache.ListerWatcherWithContext.
func (r *recoveryListerWatcher) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	ctx = r.withAccess(ctx)
	if err := r.checkHistory(ctx, options.ResourceVersion); err != nil {
		r.recordFailure(ctx, err)
		return nil, err
	}
	events, err := r.delegate.WatchWithContext(ctx, options)
	if err != nil {
		r.recordFailure(ctx, err)
		return events, err
	}
	r.access.accept()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.failedSince.IsZero() {
		r.onRecovery(time.Since(r.failedSince))
		r.failedSince = time.Time{}
	}
	return drainingWatch{events}, nil
}

func (r *recoveryListerWatcher) withAccess(ctx context.Context) context.Context {
	return context.WithValue(ctx, accessKey{}, r.access)
}

func (r *recoveryListerWatcher) recordFailure(ctx context.Context, err error) {
	r.access.fail(err)
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

// RestoreDetector is a runnable of a manager that fails, and so stops the process, when etcd was restored from a backup.
//
// After a restore, the API server does not reject a watch from a resourceVersion that it has not reached yet: it sends nothing
// until then. The caches would show objects that no longer exist, and all other memory of the process may be wrong too. A new
// process reads the present state.
type RestoreDetector struct {
	detected chan error
}

// NewRestoreDetector returns a RestoreDetector.
func NewRestoreDetector() *RestoreDetector {
	return &RestoreDetector{detected: make(chan error, 1)}
}

// NewInformer returns an informer as the function NewInformer does, which also detects restores.
func (d *RestoreDetector) NewInformer(watched cache.ListerWatcher, object runtime.Object, resync time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
	return newInformer(watched, object, resync, indexers, d.report)
}

func (d *RestoreDetector) report(err error) {
	select {
	case d.detected <- err:
	default:
	}
}

// Start implements manager.Runnable.
func (d *RestoreDetector) Start(ctx context.Context) error {
	select {
	case err := <-d.detected:
		return err
	case <-ctx.Done():
		return nil
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: all replicas have caches.
func (*RestoreDetector) NeedLeaderElection() bool { return false }

// checkHistory returns an error if the API server has not reached the resourceVersion from which a request continues. The API
// server reads the current resourceVersion from etcd. After a restore, it exceeds the known resourceVersion only if the cluster
// has written as much since the restore as the restore undid.
func (r *recoveryListerWatcher) checkHistory(ctx context.Context, known string) error {
	if r.onRestore == nil || known == "" || known == "0" {
		return nil
	}
	list, err := r.delegate.ListWithContext(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return err
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return err
	}
	current := accessor.GetResourceVersion()
	if order, err := resourceversion.CompareResourceVersion(current, known); err != nil || order >= 0 {
		return nil //nolint:nilerr // a resourceVersion that is not a number has no order
	}
	err = fmt.Errorf("etcd was restored from a backup: its resourceVersion is %s and was %s; the operator must restart, because its caches show objects that may no longer exist", current, known)
	r.onRestore(err)
	return err
}
