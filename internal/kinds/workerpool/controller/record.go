package controller

import (
	"context"
	"fmt"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool"
	"github.com/yardmaster/yardmaster/internal/kube"
)

// statsInterval is the time between two writes of a status that differs in stats only.
const statsInterval = 5 * time.Second

// record stores the decision's status, emits its events, and remembers its scaling memory.
func (r *Reconciler) record(ctx context.Context, wp *v1alpha1.WorkerPool, decision *workerpool.Decision) error {
	if err := r.storeStatus(ctx, wp, decision); err != nil {
		return err
	}
	scalingMemory := decision.Memory
	r.memory.Update(wp, func(memory *poolMemory) {
		memory.scaling, memory.rollout, memory.busyTimes = &scalingMemory, decision.Rollout, decision.BusyTimes
	})
	return nil
}

func (r *Reconciler) storeStatus(ctx context.Context, wp *v1alpha1.WorkerPool, decision *workerpool.Decision) error {
	if !wp.DeletionTimestamp.IsZero() && !decision.KeepFinalizer {
		return nil // the pool is about to be deleted, and the permission to write may be deleted already
	}
	if decision.StatusDeferrable && r.Clock.Since(wp.Status.LastDecision.Time.Time) < statsInterval {
		return nil
	}
	before, after := wp.DeepCopy(), wp.DeepCopy()
	after.Status = decision.Status
	if err := kube.UpdateStatus(ctx, r.Client, before, after); err != nil {
		return fmt.Errorf("updating status: %w", err)
	}
	if after.ResourceVersion != before.ResourceVersion {
		*wp = *after
		r.writeCache.Record(wp)
	}
	for _, event := range decision.Events {
		kube.EmitEvent(r.Recorder, wp, event)
	}
	countChanges(wp, &before.Status, &wp.Status)
	return nil
}
