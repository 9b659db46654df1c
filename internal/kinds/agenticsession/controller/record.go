package controller

import (
	"context"
	"fmt"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/internal/kube"
)

// Record implements kube.Kind. A status that opens an attempt is stored only if no other session reserved the workspace, and
// the SessionRunner has a place.
func (r *Reconciler) Record(
	ctx context.Context, s *v1alpha1.AgenticSession, observation *agenticsession.Observation, decision *agenticsession.Decision,
) (*v1alpha1.AgenticSession, error) {
	if !decision.ChangesStatus(s) {
		return s, nil
	}
	after := s.DeepCopy()
	after.Status = decision.Status
	opens := s.Status.Attempt.JobName == "" && after.Status.Attempt.JobName != ""
	// Reserve before the status is written, because waiting sessions check the reservation when they observe the
	// status.
	if !opens || after.Status.Workspace.ClaimRef.Name == "" {
		r.workspaces.releaseUnused(after)
	} else if !r.workspaces.reserve(after) {
		return s, kube.ErrStale // the next reconciliation observes which session uses it
	}
	if opens {
		if err := r.reservePlace(ctx, observation.Runner, after); err != nil {
			r.workspaces.releaseUnused(s)
			return s, err
		}
	}
	err := kube.UpdateStatus(ctx, r.Client, s, after)
	if opens {
		r.capacity.settle(after, err)
	}
	countStatusUpdate(err)
	if err != nil {
		r.workspaces.releaseUnused(s)
		return s, fmt.Errorf("updating status: %w", err)
	}
	r.writeCache.Record(after)
	r.forgetUnused(after)
	for _, event := range decision.Events {
		kube.EmitEvent(r.Recorder, after, event)
	}
	countTransition(after, &s.Status, r.Clock.Now())
	return after, nil
}
