package kube

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// A pass that failed is tried again after minBackoff, then twice as long each time up to
// maxBackoff: controller-runtime's own limit of 16 minutes would leave things standing
// long after the API server is well again.
const (
	minBackoff = 5 * time.Millisecond
	maxBackoff = 30 * time.Second
)

// ErrStale ends a pass that decided on something outdated.
var ErrStale = errors.New("what was decided on has changed or gone since it was read")

// StaleOr is ErrStale if the error says that an object was outdated.
func StaleOr(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return ErrStale
	}
	return err
}

// AfterStale has a pass that ended with ErrStale begin anew after that wait: the newer
// version is on its way, which is no failure to log and back off from.
func AfterStale(wait time.Duration, r reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
		result, err := r.Reconcile(ctx, req)
		if errors.Is(err, ErrStale) {
			return ctrl.Result{RequeueAfter: wait}, nil
		}
		return result, err
	})
}

// Passes are a controller's options for this many passes at once.
func Passes(concurrency int) controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: concurrency,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](minBackoff, maxBackoff),
	}
}
