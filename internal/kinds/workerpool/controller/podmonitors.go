package controller

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool"
)

// detectPodMonitors checks periodically whether the cluster has the PodMonitor kind: the
// Prometheus operator may be installed later. A watch of CustomResourceDefinitions would need
// the permission to watch all of them. Pools with workers are reconciled often enough to get
// their PodMonitor soon after.
func (r *Reconciler) detectPodMonitors(ctx context.Context, mgr ctrl.Manager, c controller.Controller) error {
	watched := false
	err := wait.PollUntilContextCancel(ctx, r.options.PodMonitors, true, func(ctx context.Context) (done bool, _ error) {
		_, err := mgr.GetRESTMapper().RESTMapping(workerpool.PodMonitorKind.GroupKind(), workerpool.PodMonitorKind.Version)
		switch {
		case err == nil && !watched:
			watched = true
			r.podMonitors.Store(true)
			return false, c.Watch(podMonitorSource(mgr))
		case err == nil:
			r.podMonitors.Store(true)
		case !meta.IsNoMatchError(err):
			ctrl.LoggerFrom(ctx).Error(err, "Could not check whether the cluster has PodMonitors")
		}
		return false, nil
	})
	if wait.Interrupted(err) {
		return nil
	}
	return err
}

// podMonitorSource watches the PodMonitors of pools for external changes.
func podMonitorSource(mgr ctrl.Manager) source.Source {
	monitor := &metav1.PartialObjectMetadata{}
	monitor.SetGroupVersionKind(workerpool.PodMonitorKind)
	owner := handler.EnqueueRequestForOwner(mgr.GetScheme(), mgr.GetRESTMapper(), &v1alpha1.WorkerPool{}, handler.OnlyControllerOwner())
	return source.Kind[client.Object](mgr.GetCache(), monitor, owner, externalChange)
}

func isPodMonitor(object client.Object) bool {
	return object.GetObjectKind().GroupVersionKind() == workerpool.PodMonitorKind
}
