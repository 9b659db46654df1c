package controller

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker/brokeraccess"
	"github.com/yardmaster/yardmaster/internal/broker/brokerconn"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool/scaling"
	"github.com/yardmaster/yardmaster/internal/kube"
)

// statsInterval is the time between two writes of a status that differs only in stats.
const statsInterval = 5 * time.Second

// Record implements kube.Kind. It remembers the memory of the decision even if it does not store the status.
func (r *Reconciler) Record(ctx context.Context, wp *v1alpha1.WorkerPool, _ *Observed, decision *workerpool.Decision) (*v1alpha1.WorkerPool, error) {
	isLeaving := !wp.DeletionTimestamp.IsZero() && !decision.KeepFinalizer // the permission to write may have been deleted
	isDeferred := decision.StatusDeferrable && r.Clock.Since(wp.Status.LastDecision.Time.Time) < statsInterval
	if !isLeaving && !isDeferred {
		stored, err := r.writeCache.UpdateStatus(ctx, r.Client, wp, func(after *v1alpha1.WorkerPool) { after.Status = decision.Status })
		if err != nil {
			return wp, err
		}
		for _, event := range decision.Events {
			kube.EmitEvent(r.Recorder, stored, event)
		}
		countChanges(stored, &wp.Status, &stored.Status)
		wp = stored
	}
	scalingMemory := decision.Memory
	r.memory.Update(wp, func(memory *poolMemory) {
		memory.scaling, memory.rollout, memory.busyTimes = &scalingMemory, decision.Rollout, decision.BusyTimes
	})
	return wp, nil
}

type poolMemory struct {
	// scaling is the memory of the last decision, which the status has too, but is written less often.
	scaling *scaling.Memory
	// rollout is the memory of the last decision about a rollout.
	rollout workerpool.RolloutMemory
	// busyTimes of the last decision.
	busyTimes workerpool.BusyTimes
	// protectionRetry is when protections are written again after a refusal.
	protectionRetry time.Time
	// broker and queues that the pool consumes.
	broker brokeraccess.Key
	queues []string
	// applied objects, by kind.
	applied map[string]appliedObject
	// refusal of the last reconciliation.
	refusal *decision.Refusal
	// drainRequests of the last decision, which are sent before workers are observed again.
	drainRequests []workerpool.DrainRequest
}

// scalingMemory returns the memory of the last decision, from the status if this process has made no decision.
func (r *Reconciler) scalingMemory(wp *v1alpha1.WorkerPool) scaling.Memory {
	if memory, _ := r.memory.Get(wp); memory.scaling != nil {
		return *memory.scaling
	}
	return scaling.RestoreMemory(wp.Status.Scaling)
}

// poolsAffected returns the pools that a broker's notification concerns.
func (r *Reconciler) poolsAffected(n brokerconn.Notification) []types.NamespacedName {
	var pools []types.NamespacedName
	r.memory.Each(func(key types.NamespacedName, _ types.UID, memory poolMemory) bool {
		if memory.broker == n.Key && (n.Queue == "" || slices.Contains(memory.queues, n.Queue)) {
			pools = append(pools, key)
		}
		return true
	})
	return pools
}
