package workerpool

import (
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool/scaling"
)

// Decision is what to do about a WorkerPool: record Status, then act in the order of the fields.
type Decision struct {
	// Status to record. If that fails, the operator must not act.
	Status v1alpha1.WorkerPoolStatus
	// StatusDeferrable is true if Status differs from the stored status in stats only.
	StatusDeferrable bool
	// Memory for the next scaling decision.
	Memory scaling.Memory
	// Rollout is the memory of the rollout for the next decision.
	Rollout RolloutMemory
	// BusyTimes for the next decision.
	BusyTimes BusyTimes
	// KeepFinalizer is true until all workers of a deleted pool have stopped. Adding the
	// finalizer comes before all other actions, removing it comes last.
	KeepFinalizer bool
	// DrainStates to write on Pods, each only over the version that was read.
	DrainStates []DrainState
	// DrainRequests to send to workers.
	DrainRequests []DrainRequest
	// SharedObjects to apply: those that all revisions use.
	SharedObjects []decision.Object
	// CurrentWorkload to restore if it has drifted, except for its replicas: the workload of
	// the updated revision; nil if it does not exist yet.
	CurrentWorkload decision.Object
	// Resizes of revisions. A revision that does not exist yet is created.
	Resizes []RevisionSize
	// DeleteRevisions without workers, by name.
	DeleteRevisions []string
	// Protections to write on Pods that get no drain state, each only over the version that was read.
	Protections []ProtectionChange
	// Events to emit once Status is stored.
	Events []decision.Event
	// RequeueAfter is the time until the next decision if nothing else triggers one; 0 means
	// never.
	RequeueAfter time.Duration
}

// DrainState is the state of a worker that stops; a zero time means that the worker has not
// reached the state.
type DrainState struct {
	Worker                                   string
	DrainingSince, IdleSince, RemovableSince time.Time
}

// DrainRequest is a request to a worker.
type DrainRequest struct {
	Worker string
	// Drain asks the worker to drain; false asks it to undrain.
	Drain bool
	// Stop asks it to end its process once it is drained.
	Stop bool
}

// RevisionSize is the number of replicas to set on a revision.
type RevisionSize struct {
	Name     string
	Replicas int32
	History  History
	// NewWorkload is the object to create; nil if the revision exists.
	NewWorkload decision.Object
	// Removable workers, and Unstarted ones among them whose container did not run.
	Removable, Unstarted []string
	// Ordered is true if workers are removed by their ordinals, the highest first.
	Ordered bool
}

// addDrainActions adds the drain states to write, and requests to workers whose behavior differs
// from their state.
func (d *Decision) addDrainActions(workers []*workerState, mode v1alpha1.DrainMode) {
	for _, w := range workers {
		if !w.targetDraining.Equal(w.DrainingSince) || !w.targetIdle.Equal(w.IdleSince) || !w.targetRemovable.Equal(w.RemovableSince) {
			d.DrainStates = append(d.DrainStates, DrainState{w.Name, w.targetDraining, w.targetIdle, w.targetRemovable})
		}
		if !w.Running && w.Stats == nil || mode == v1alpha1.DrainSignal {
			continue
		}
		isDraining := w.Stats != nil && w.Stats.Draining
		if shouldDrain := !w.targetDraining.IsZero(); shouldDrain != isDraining {
			d.DrainRequests = append(d.DrainRequests, DrainRequest{Worker: w.Name, Drain: shouldDrain})
		}
	}
}

// addStopRequests adds requests to workers whose Pod is terminating, but that still take messages. Their process missed
// the preStop hook and the signal, which the kernel discards if the first process of a container has not started to
// handle signals. Kubernetes sends neither again until the termination grace period has passed.
func (d *Decision) addStopRequests(workers []Worker, mode v1alpha1.DrainMode) {
	for i := range workers {
		if w := &workers[i]; w.Terminating && w.Stats != nil && !w.Stats.Draining && mode != v1alpha1.DrainSignal {
			d.DrainRequests = append(d.DrainRequests, DrainRequest{Worker: w.Name, Drain: true, Stop: true})
		}
	}
}

// changesCluster reports whether the decision changes anything other than the status.
func (d *Decision) changesCluster() bool {
	return len(d.DrainStates)+len(d.DrainRequests)+len(d.Resizes)+len(d.DeleteRevisions) > 0 || !d.KeepFinalizer
}
