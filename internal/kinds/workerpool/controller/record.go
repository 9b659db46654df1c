package controller

import (
	"context"
	"fmt"
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

// poolMemory is what this process remembers of a pool.
type poolMemory struct {
	// scaling is the memory of the last decision. The status has it too, but is written less
	// often.
	scaling *scaling.Memory
	// rollout is the memory of the last decision about a rollout.
	rollout workerpool.RolloutMemory
	// busyTimes of the last decision.
	busyTimes workerpool.BusyTimes
	// protectionRetry is when protections are written again after the API server refused one.
	protectionRetry time.Time
	// broker and queues that the pool consumes.
	broker brokeraccess.Key
	queues []string
	// applied objects, by kind.
	applied map[string]appliedObject
	// refusal of the last reconciliation.
	refusal *decision.Refusal
	// drainRequests of the last reconciliation, which are sent before workers are observed again.
	drainRequests []workerpool.DrainRequest
}

// scalingMemory returns the memory of the last decision, from the status if this process has
// made none.
func (r *Reconciler) scalingMemory(wp *v1alpha1.WorkerPool) scaling.Memory {
	if memory, _ := r.memory.Get(wp); memory.scaling != nil {
		return *memory.scaling
	}
	return scaling.RestoreMemory(wp.Status.Scaling)
}

// remember stores what the next reconciliation and the broker's notifications need.
func (r *Reconciler) remember(wp *v1alpha1.WorkerPool, observed *observation, decision *workerpool.Decision) {
	r.memory.Update(wp, func(memory *poolMemory) {
		memory.refusal, memory.drainRequests = observed.Refusal, decision.DrainRequests
		if observed.queues != nil {
			memory.broker, memory.queues = observed.queues.conn.Key, observed.queues.names()
		}
	})
}

// poolsAffected returns the pools that a broker's notification is about.
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
