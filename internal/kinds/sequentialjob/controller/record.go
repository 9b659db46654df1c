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

// postponedFor is the delay until the next decision if the status was not stored because of the rate limit.
const postponedFor = 10 * time.Second

// Record implements kube.Kind. When many steps of a namespace start and succeed, their progress is stored later, or not before the outcome of
// the run.
func (r *Reconciler) Record(
	ctx context.Context, sj *v1alpha1.SequentialJob, observation *sequentialjob.Observation, d *sequentialjob.Decision,
) (*v1alpha1.SequentialJob, error) {
	if d.RecordWithin > 0 && !r.progressWrites.Allow(sj.Namespace) {
		d.RequeueAfter = decision.Earliest(d.RequeueAfter, d.RecordWithin, postponedFor)
		return sj, nil
	}
	if d.StatusChanged {
		stored, err := r.store(ctx, sj, &d.Status, observation.KnowsJobs())
		if err != nil {
			return sj, err
		}
		sj = stored
	}
	for _, event := range d.Events {
		r.emit(sj, event)
	}
	return sj, nil
}

func (r *Reconciler) store(
	ctx context.Context, sj *v1alpha1.SequentialJob, status *v1alpha1.SequentialJobStatus, knowsJobs bool,
) (*v1alpha1.SequentialJob, error) {
	stored, err := r.writeCache.UpdateStatus(ctx, r.Client, sj, func(after *v1alpha1.SequentialJob) { after.Status = *status })
	if apierrors.IsConflict(err) {
		conflictsTotal.Inc()
	}
	if err != nil {
		return nil, err
	}
	r.createdJobs.forgetRecorded(stored)
	countEnded(&sj.Status, &stored.Status)
	switch {
	case sequentialjob.IsFinished(&stored.Status):
		r.stored.Delete(stored)
	case knowsJobs:
		r.stored.Set(stored, stored.ResourceVersion)
	}
	return stored, nil
}

var stepResults = map[v1alpha1.StepPhase]string{
	v1alpha1.StepSucceeded: "succeeded",
	v1alpha1.StepFailed:    "failed",
	v1alpha1.StepSkipped:   "skipped",
	v1alpha1.StepRetrying:  "retried",
}

// countEnded counts the steps and the archive that ended between two statuses.
func countEnded(before, after *v1alpha1.SequentialJobStatus) {
	ended := make(map[string]v1alpha1.StepPhase, len(before.Steps))
	for i := range before.Steps {
		if before.Run == after.Run {
			ended[before.Steps[i].Name] = before.Steps[i].Phase
		}
	}
	for i := range after.Steps {
		step := &after.Steps[i]
		isKept := step.Run != 0 && step.Run != after.Run
		if result, hasEnded := stepResults[step.Phase]; hasEnded && !isKept && ended[step.Name] != step.Phase {
			stepsTotal.WithLabelValues(result).Inc()
		}
	}
	if sequentialjob.HasArchiveEnded(before.Archive, after.Archive) {
		result := "archived"
		if after.Archive.Error != "" {
			result = "failed"
		}
		archivesTotal.WithLabelValues(result).Inc()
	}
}

func (r *Reconciler) emit(sj *v1alpha1.SequentialJob, event decision.Event) {
	if event.Routine && !r.routineEvents.Allow(sj.Namespace) {
		eventsOmittedTotal.Inc()
		return
	}
	kube.EmitEvent(r.Recorder, sj, event)
}

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
