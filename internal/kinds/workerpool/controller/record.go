package controller

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker/brokeraccess"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool/scaling"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/internal/kube/metric"
)

// statsInterval is the time between two writes of a status that differs only in stats.
const statsInterval = 5 * time.Second

// Record implements kube.Kind. It remembers the memory of the decision even if it does not store the status.
func (r *Reconciler) Record(ctx context.Context, wp *v1alpha1.WorkerPool, _ *Observed, decision *workerpool.Decision) (*v1alpha1.WorkerPool, error) {
	isDeferred := decision.StatusDeferrable && r.Clock.Since(wp.Status.LastDecision.Time.Time) < statsInterval
	if !decision.Leave && !isDeferred { // the permission to write may have been deleted with the last worker
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
		memory.work = decision.Work
	})
	return wp, nil
}

var (
	scalingsTotal = metric.NewObjectCounter("yardmaster_workerpool_scalings_total",
		"Changes of the desired number of workers, by direction (up or down) and reason.", poolLabel, "direction", "reason")
	rolloutsTotal = metric.NewObjectCounter("yardmaster_workerpool_rollouts_total",
		"Completed rollouts.", poolLabel)
	drainTimeoutsTotal = metric.NewObjectCounter("yardmaster_workerpool_drain_timeouts_total",
		"Times that workers of a WorkerPool exceeded drain.timeout.", poolLabel)
)

func countChanges(wp *v1alpha1.WorkerPool, before, after *v1alpha1.WorkerPoolStatus) {
	if before.Desired != after.Desired {
		direction, reason := "up", v1alpha1.ReasonManual
		if after.Desired < before.Desired {
			direction = "down"
		}
		if after.LastDecision != nil {
			reason = after.LastDecision.Reason
		}
		scalingsTotal.Of(wp, direction, reason).Inc()
	}
	if before.CurrentRevision != "" && before.CurrentRevision != after.CurrentRevision {
		rolloutsTotal.Of(wp).Inc()
	}
	timedOut := func(status *v1alpha1.WorkerPoolStatus) bool {
		return decision.FindReason(status.Conditions, v1alpha1.ConditionDegraded, v1alpha1.ReasonDrainTimeout) != nil
	}
	if timedOut(after) && !timedOut(before) {
		drainTimeoutsTotal.Of(wp).Inc()
	}
}

// forgetMetrics removes the counters of a deleted WorkerPool.
func forgetMetrics(key types.NamespacedName) {
	scalingsTotal.Forget(key)
	rolloutsTotal.Forget(key)
	drainTimeoutsTotal.Forget(key)
}

type poolMemory struct {
	// scaling is the memory of the last decision; nil before the first decision of this process.
	scaling *scaling.Memory
	// rollout is the memory of the last decision about a rollout.
	rollout workerpool.RolloutMemory
	// work is the memory of what workers finish.
	work workerpool.WorkMemory
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
