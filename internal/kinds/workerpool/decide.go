package workerpool

import (
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool/scaling"
)

// Decision is what to do about a WorkerPool: record Status, then act.
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
	Actions
	// Events to emit once Status is stored.
	Events []decision.Event
	// RequeueAfter is the time until the next decision if nothing else triggers one; 0 means
	// never.
	RequeueAfter time.Duration
}

// Actions on the objects of a pool, in the order of the fields.
type Actions struct {
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

// Decide returns what to do about a WorkerPool.
func Decide(observation Observation) Decision {
	f := newFleet(observation)
	d := decideDemand(f)
	r := decideRollout(f, d.desired)
	p := planWorkers(f, &r)
	report := newReport(f, &d, &r, &p)
	return Decision{
		Status:           *report.status,
		StatusDeferrable: differsInStatsOnly(&f.Pool.Status, report.status) && !p.changesCluster(),
		Memory:           d.memory,
		Rollout:          r.memory,
		BusyTimes:        p.busyTimes,
		Actions:          p.Actions,
		Events:           report.events(),
		RequeueAfter:     report.requeueAfter(),
	}
}
