package sequentialjob

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/core"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/internal/sequence"
)

// record stores the decision's status, then emits its events. On success sj is the stored object.
func (r *Reconciler) record(ctx context.Context, sj *v1alpha1.SequentialJob, decision *sequence.Decision) error {
	if decision.StatusChanged {
		before, after := sj.DeepCopy(), sj.DeepCopy()
		after.Status = decision.Status
		if err := kube.PatchStatus(ctx, r.Client, before, after); err != nil {
			if apierrors.IsConflict(err) {
				conflictsTotal.Inc()
			}
			return fmt.Errorf("patching status: %w", err)
		}
		*sj = *after
		r.writeCache.Record(sj)
		r.createdJobs.forgetRecorded(sj)
		countEndedSteps(&before.Status, &sj.Status)
	}
	for _, event := range decision.Events {
		r.emit(sj, event)
	}
	return nil
}

func (r *Reconciler) emit(sj *v1alpha1.SequentialJob, event core.Event) {
	if event.Routine && !r.routineEvents.Allow() {
		eventsOmittedTotal.Inc()
		return
	}
	kube.EmitEvent(r.Recorder, sj, event)
}
