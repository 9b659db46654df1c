package controller

import (
	"context"
	"fmt"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/schedule"
	"github.com/yardmaster/yardmaster/internal/kube"
)

// record stores the decision's status, then emits its events and counts what it records. On success s is the stored
// object.
func (r *Reconciler) record(ctx context.Context, s *v1alpha1.Schedule, decision *schedule.Decision) error {
	if !decision.StatusChanged {
		return nil
	}
	before := s.DeepCopy()
	after := s.DeepCopy()
	after.Status = decision.Status
	if err := kube.UpdateStatus(ctx, r.Client, before, after); err != nil {
		return fmt.Errorf("updating status: %w", err)
	}
	*s = *after
	r.writeCache.Record(after)
	count(s, decision)
	for _, event := range decision.Events {
		if !event.Routine || r.routineEvents.Allow(s.Namespace) {
			kube.EmitEvent(r.Recorder, s, event)
		}
	}
	return nil
}
