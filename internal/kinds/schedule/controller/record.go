package controller

import (
	"context"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/schedule"
	"github.com/yardmaster/yardmaster/internal/kube"
)

// Record implements kube.Kind. It also updates the counters.
func (r *Reconciler) Record(ctx context.Context, s *v1alpha1.Schedule, _ *schedule.Observation, decision *schedule.Decision) (*v1alpha1.Schedule, error) {
	startCounters(s)
	if !decision.StatusChanged {
		return s, nil
	}
	s, err := r.writeCache.UpdateStatus(ctx, r.Client, s, func(after *v1alpha1.Schedule) { after.Status = decision.Status })
	if err != nil {
		return s, err
	}
	count(s, decision)
	for _, event := range decision.Events {
		if !event.Routine || r.routineEvents.Allow(s.Namespace) {
			kube.EmitEvent(r.Recorder, s, event)
		}
	}
	return s, nil
}
