package controller

import (
	"context"
	"fmt"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/queue"
	"github.com/yardmaster/yardmaster/internal/kube"
)

// record stores the status of a Queue, and then emits the events of its change.
func (r *Reconciler) record(ctx context.Context, q *v1alpha1.Queue, d *queue.Decision) error {
	r.tracked.Update(q, func(t *trackedQueue) { t.history = d.History })
	if d.StatusUnchanged && len(d.Events) == 0 {
		return nil
	}
	if d.StatsOnly && !r.statsWrites.Allow() {
		d.PostponeStatus()
		return nil
	}
	before := q.DeepCopy()
	q.Status = d.Status
	if err := kube.UpdateStatus(ctx, r.Client, before, q); err != nil {
		if d.StatusOptional && decision.ClassOf(err) == decision.PermissionMissing {
			return nil
		}
		return fmt.Errorf("updating status: %w", err)
	}
	if q.ResourceVersion != before.ResourceVersion {
		r.writeCache.Record(q)
	}
	for _, event := range d.Events {
		r.emit(q, event)
	}
	return nil
}

func (r *Reconciler) emit(q *v1alpha1.Queue, e decision.Event) {
	if e.Routine && !r.routineEvents.Allow() {
		return
	}
	kube.EmitEvent(r.Recorder, q, e)
}
