package informer

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
)

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
