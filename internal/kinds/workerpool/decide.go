package workerpool

import (
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool/scaling"
)

// Decision has the next actions: record Status, then act.
type Decision struct {
	// Status to record. If the write fails, the operator must not act.
	Status v1alpha1.WorkerPoolStatus
	// StatusDeferrable is true if Status differs from the stored status only in stats.
	StatusDeferrable bool
	// Memory for the next scaling decision.
	Memory scaling.Memory
	// Rollout is the memory of the rollout for the next decision.
	Rollout RolloutMemory
	// Work is the memory of what workers finish for the next decision.
	Work WorkMemory
	// BusyTimes for the next decision.
	BusyTimes BusyTimes
	Actions
	// Events to emit once Status is stored.
	Events []decision.Event
	// RequeueAfter is the time until the next decision if no event triggers it; 0 means never.
	RequeueAfter time.Duration
}

// Actions on the objects of a pool, in the order of the fields.
type Actions struct {
	// KeepFinalizer is true while the pool has workers, or is about to start some: the deletion of a pool without workers does not
	// wait for the operator. The finalizer is added first, and removed last.
	KeepFinalizer bool
	// Leave is true once all workers of a deleted pool have stopped.
	Leave bool
	// DrainStates to write on Pods, only over the versions that were read.
	DrainStates []DrainState
	// DrainRequests to send to workers, before they are observed again.
	DrainRequests []DrainRequest
	// SharedObjects of all revisions to apply.
	SharedObjects []decision.Object
	// CurrentWorkload of the updated revision, to restore if it has drifted, except for its replicas; nil if it does
	// not exist yet.
	CurrentWorkload decision.Object
	// Resizes of revisions. A revision that does not exist yet is created.
	Resizes []RevisionSize
	// DeleteRevisions without workers, by name.
	DeleteRevisions []string
	// Protections to write on Pods that get no drain state, only over the versions that were read.
	Protections []ProtectionChange
}

// DrainState is the state of a worker that stops; a zero time is of a state that the worker has not reached.
type DrainState struct {
	Worker                                   string
	DrainingSince, IdleSince, RemovableSince time.Time
	// Unprotect is true if the Pod loses its protection: the worker has finished.
	Unprotect bool
}

// DrainRequest is a request to a worker.
type DrainRequest struct {
	Worker string
	// Drain is true to drain, false to undrain.
	Drain bool
	// Stop is true to end the process once the worker is drained.
	Stop bool
}

// RevisionSize is the number of replicas to set on a revision.
type RevisionSize struct {
	Name     string
	Replicas int32
	History  History
	// NewWorkload is the object to create; nil if the revision exists.
	NewWorkload decision.Object
	// Finished workers to delete with EndGrace, before the workload controller would delete them with their own grace period.
	Finished []string
	// Removable workers, and Unstarted workers among them, whose container did not run.
	Removable, Unstarted []string
}

// Decide returns the next actions of a WorkerPool.
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
		Work:             f.work,
		BusyTimes:        p.busyTimes,
		Actions:          p.Actions,
		Events:           report.events(),
		RequeueAfter:     report.requeueAfter(),
	}
}
