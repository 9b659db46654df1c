package controller

import (
	"context"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/queue"
	"github.com/yardmaster/yardmaster/internal/kube"
)

// Record implements kube.Kind. It uses the Queue of the observation, which actions may have changed since it was read.
func (r *Reconciler) Record(ctx context.Context, _ *v1alpha1.Queue, o *queue.Observation, d *queue.Decision) (*v1alpha1.Queue, error) {
	q := o.Queue
	r.tracked.Update(q, func(t *trackedQueue) { t.history = d.History })
	if d.StatusUnchanged && len(d.Events) == 0 {
		return q, nil
	}
	if d.StatsOnly && !r.statsWrites.Allow() {
		d.PostponeStatus()
		return q, nil
	}
	stored, err := r.writeCache.UpdateStatus(ctx, r.Client, q, func(after *v1alpha1.Queue) { after.Status = d.Status })
	if err != nil {
		if d.StatusOptional && decision.ClassOf(err) == decision.PermissionMissing {
			return q, nil
		}
		return q, err
	}
	for _, event := range d.Events {
		r.emit(stored, event)
	}
	return stored, nil
}

func (r *Reconciler) emit(q *v1alpha1.Queue, e decision.Event) {
	if e.Routine && !r.routineEvents.Allow() {
		return
	}
	kube.EmitEvent(r.Recorder, q, e)
}
