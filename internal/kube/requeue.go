package kube

import (
	"context"
	"errors"
	"time"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/yardmaster/yardmaster/internal/decision"
)

// A failed reconciliation is retried after minBackoff, then twice as long each time up to maxBackoff. controller-runtime's own
// limit of 16 minutes would keep objects waiting long after the API server is available again.
const (
	minBackoff = 5 * time.Millisecond
	maxBackoff = 30 * time.Second
)

// After a conflict the cache needs a moment to catch up: the first wait is minConflictBackoff. After maxConsecutiveConflicts in
// a row, which take more than a minute, the reconciliation fails with an error, which is logged.
const (
	minConflictBackoff      = 20 * time.Millisecond
	maxConflictBackoff      = 5 * time.Second
	maxConsecutiveConflicts = 20
)

// ErrStale ends a reconciliation whose decision was based on an outdated object.
var ErrStale = errors.New("the object changed or was deleted after it was read")

// ErrPending ends a reconciliation that has not decided yet: its object is enqueued again when the observation ends. It is
// neither a failure nor a success.
var ErrPending = errors.New("the observation has not ended")

// RequeueOnConflict retries a reconciliation that ended with ErrStale, or whose object changed or disappeared in the meantime,
// after a short and growing wait. Such an end is expected, and so neither logged nor counted as an error.
func RequeueOnConflict(r reconcile.Reconciler) reconcile.Reconciler {
	conflicts := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](minConflictBackoff, maxConflictBackoff)
	return reconcile.Func(func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
		result, err := r.Reconcile(ctx, req)
		if errors.Is(err, ErrPending) {
			return ctrl.Result{}, nil
		}
		if !isStaleError(err) {
			conflicts.Forget(req)
			return result, err
		}
		wait := conflicts.When(req)
		if conflicts.NumRequeues(req) > maxConsecutiveConflicts {
			conflicts.Forget(req)
			return ctrl.Result{}, err
		}
		return ctrl.Result{RequeueAfter: wait}, nil
	})
}

func isStaleError(err error) bool {
	if errors.Is(err, ErrStale) {
		return true
	}
	class := decision.ClassOf(err)
	return class == decision.Conflict || class == decision.NotFound
}

// ControllerOptions returns a controller's options for this number of concurrent reconciliations.
func ControllerOptions(concurrency int) controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: concurrency,
		NewQueue:                newFairQueue,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](minBackoff, maxBackoff),
	}
}
