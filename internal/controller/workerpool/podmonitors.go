package workerpool

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/pool"
)

// awaitPodMonitors looks now and then whether the cluster has PodMonitors: the Prometheus
// operator may be installed after this one. To be told of kinds that come would take the
// permission to watch all of them.
//
// Pools with workers are looked at often enough to have theirs made.
func (r *Reconciler) awaitPodMonitors(ctx context.Context, mgr ctrl.Manager, c controller.Controller) error {
	ticker := time.NewTicker(r.options.PodMonitors)
	defer ticker.Stop()
	watched := false
	for {
		_, err := mgr.GetRESTMapper().RESTMapping(pool.PodMonitorKind.GroupKind(), pool.PodMonitorKind.Version)
		if err == nil && !watched {
			if err := c.Watch(podMonitorsOf(mgr)); err != nil {
				return err
			}
			watched = true
		}
		if err != nil && !meta.IsNoMatchError(err) {
			ctrl.LoggerFrom(ctx).Error(err, "Looking whether the cluster has PodMonitors")
		}
		if err == nil {
			r.podMonitors.Store(true)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// podMonitorsOf pools, as they come to be changed by hand.
func podMonitorsOf(mgr ctrl.Manager) source.Source {
	monitor := &metav1.PartialObjectMetadata{}
	monitor.SetGroupVersionKind(pool.PodMonitorKind)
	owner := handler.EnqueueRequestForOwner(mgr.GetScheme(), mgr.GetRESTMapper(), &v1alpha1.WorkerPool{}, handler.OnlyControllerOwner())
	return source.Kind[client.Object](mgr.GetCache(), monitor, owner, byHand)
}

func isPodMonitor(object client.Object) bool {
	return object.GetObjectKind().GroupVersionKind() == pool.PodMonitorKind
}

// isNone tells that there is no such object, or no such kind.
func isNone(err error) bool { return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) }
