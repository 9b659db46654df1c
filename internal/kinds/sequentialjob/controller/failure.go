package controller

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/sequentialjob"
	"github.com/yardmaster/yardmaster/internal/kube"
)

// failureReportDelay is how long reconciliations fail before the status reports it. A retry usually succeeds sooner.
const failureReportDelay = 3 * time.Second

const maxFailureBytes = 1024

type failure struct {
	since time.Time
	// reported is the message in the status; empty if not reported.
	reported string
}

// ReportFailure implements kube.FailureReporter. It reports failures that last in an event, which remains even if the
// write fails, and in the status.
func (r *Reconciler) ReportFailure(ctx context.Context, sj *v1alpha1.SequentialJob, err error) {
	if apierrors.IsConflict(err) || errors.Is(err, kube.ErrStale) || errors.Is(err, context.Canceled) {
		return
	}
	now, message, isDue := r.Clock.Now(), decision.TruncateMessage(err.Error(), maxFailureBytes), false
	r.failures.Update(sj, func(f *failure) {
		if f.since.IsZero() {
			f.since = now
		}
		if isDue = f.reported == "" && now.Sub(f.since) >= failureReportDelay; isDue {
			f.reported = message
		}
	})
	if !isDue {
		return
	}
	r.emit(sj, decision.WarningEvent(v1alpha1.EventReconcileFailed, "Reconcile", message))
	_, _ = r.writeCache.UpdateStatus(ctx, r.Client, sj, func(after *v1alpha1.SequentialJob) {
		decision.Set(&after.Status.Conditions, sj.Generation, metav1.NewTime(now), sequentialjob.Summary(&after.Spec, &after.Status, message))
	}) // if the write fails, the next recorded decision has the conditions
}

// reportedFailure returns the message that the status reports, or "".
func (r *Reconciler) reportedFailure(sj *v1alpha1.SequentialJob) string {
	f, _ := r.failures.Get(sj)
	return f.reported
}
