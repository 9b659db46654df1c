package controller

import (
	"context"
	"fmt"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/policy"
	"github.com/yardmaster/yardmaster/internal/kube"
)

func (r *Reconciler) record(ctx context.Context, p *v1alpha1.Policy, decision *policy.Decision) error {
	before, after := p.DeepCopy(), p.DeepCopy()
	after.Status = decision.Status
	if err := kube.UpdateStatus(ctx, r.Client, before, after); err != nil {
		return fmt.Errorf("updating status: %w", err)
	}
	for _, event := range decision.Events {
		kube.EmitEvent(r.Recorder, after, event)
	}
	return nil
}
