package controller

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/sequentialjob"
	"github.com/yardmaster/yardmaster/internal/kube"
)

// postponedFor is the time after which a status that was not stored because of the limit is decided again.
const postponedFor = time.Second

// record stores the decision's status, then emits its events. On success sj is the stored object. When many steps of a
// namespace start, that they run is stored later or together with their outcome.
func (r *Reconciler) record(ctx context.Context, sj *v1alpha1.SequentialJob, decision *sequentialjob.Decision) error {
	if decision.StatusChanged && sequentialjob.OnlyReportsRunning(&sj.Status, &decision.Status) && !r.runningReports.Allow(sj.Namespace) {
		if decision.RequeueAfter == 0 || decision.RequeueAfter > postponedFor {
			decision.RequeueAfter = postponedFor
		}
		return nil
	}
	if decision.StatusChanged {
		before, after := sj.DeepCopy(), sj.DeepCopy()
		after.Status = decision.Status
		if err := kube.UpdateStatus(ctx, r.Client, before, after); err != nil {
			if apierrors.IsConflict(err) {
				conflictsTotal.Inc()
			}
			return fmt.Errorf("updating status: %w", err)
		}
		*sj = *after
		r.remember(sj)
		r.createdJobs.forgetRecorded(sj)
		countEndedSteps(&before.Status, &sj.Status)
		if sequentialjob.HasArchiveEnded(before.Status.Archive, sj.Status.Archive) {
			archivesTotal.WithLabelValues(archiveResults[sj.Status.Archive.State]).Inc()
		}
	}
	for _, event := range decision.Events {
		r.emit(sj, event)
	}
	return nil
}

func (r *Reconciler) emit(sj *v1alpha1.SequentialJob, event decision.Event) {
	if event.Routine && !r.routineEvents.Allow(sj.Namespace) {
		eventsOmittedTotal.Inc()
		return
	}
	kube.EmitEvent(r.Recorder, sj, event)
}
