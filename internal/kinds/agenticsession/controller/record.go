package controller

import (
	"context"
	"fmt"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/internal/kube"
)

// record stores the decision's status, then emits its events. A status that opens an attempt is
// stored only if no other session reserved the workspace, and its SessionRunner has a place.
func (r *Reconciler) record(ctx context.Context, s *v1alpha1.AgenticSession, observation *agenticsession.Observation, decision *agenticsession.Decision) error {
	if !decision.ChangesStatus(s) {
		return nil
	}
	before, after := s.DeepCopy(), s.DeepCopy()
	after.Status = decision.Status
	opens := before.Status.Job == "" && after.Status.Job != ""
	// Before the status is written, because waiting sessions check the reservation when they observe that status.
	if !opens || after.Status.WorkspaceClaim == "" {
		r.workspaces.releaseUnused(after)
	} else if !r.workspaces.reserve(after) {
		return kube.ErrStale // the next reconciliation observes which session uses it
	}
	if opens {
		if err := r.reservePlace(ctx, observation.Runner, after); err != nil {
			r.workspaces.releaseUnused(s)
			return err
		}
	}
	err := kube.UpdateStatus(ctx, r.Client, before, after)
	if opens {
		r.capacity.settle(after, err)
	}
	countStatusUpdate(err)
	if err != nil {
		r.workspaces.releaseUnused(s)
		return fmt.Errorf("updating status: %w", err)
	}
	*s = *after
	r.writeCache.Record(s)
	r.forgetUnused(s)
	for _, event := range decision.Events {
		kube.EmitEvent(r.Recorder, s, event)
	}
	countTransition(s, &before.Status, r.Clock.Now())
	return nil
}
