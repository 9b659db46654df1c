package controller

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/sequentialjob"
	"github.com/yardmaster/yardmaster/internal/kube"
)

// postponedFor is the delay until the next decision if the status was not stored because of the rate limit.
const postponedFor = time.Second

// Record implements kube.Kind. When many steps of a namespace start, the phase Running is stored later, or not before
// the outcome.
func (r *Reconciler) Record(
	ctx context.Context, sj *v1alpha1.SequentialJob, _ *sequentialjob.Observation, decision *sequentialjob.Decision,
) (*v1alpha1.SequentialJob, error) {
	if decision.StatusChanged && sequentialjob.OnlyReportsRunning(&sj.Status, &decision.Status, r.Clock.Now()) && !r.runningReports.Allow(sj.Namespace) {
		if decision.RequeueAfter == 0 || decision.RequeueAfter > postponedFor {
			decision.RequeueAfter = postponedFor
		}
		return sj, nil
	}
	if decision.StatusChanged {
		stored, err := r.writeCache.UpdateStatus(ctx, r.Client, sj, func(after *v1alpha1.SequentialJob) { after.Status = decision.Status })
		if err != nil {
			if apierrors.IsConflict(err) {
				conflictsTotal.Inc()
			}
			return sj, err
		}
		r.createdJobs.forgetRecorded(stored)
		countEndedSteps(&sj.Status, &stored.Status)
		countArchive(&sj.Status, &stored.Status)
		sj = stored
	}
	for _, event := range decision.Events {
		r.emit(sj, event)
	}
	return sj, nil
}

func countArchive(before, after *v1alpha1.SequentialJobStatus) {
	if !sequentialjob.HasArchiveEnded(before.Archive, after.Archive) {
		return
	}
	result := "archived"
	if after.Archive.Error != "" {
		result = "failed"
	}
	archivesTotal.WithLabelValues(result).Inc()
}

func (r *Reconciler) emit(sj *v1alpha1.SequentialJob, event decision.Event) {
	if event.Routine && !r.routineEvents.Allow(sj.Namespace) {
		eventsOmittedTotal.Inc()
		return
	}
	kube.EmitEvent(r.Recorder, sj, event)
}
