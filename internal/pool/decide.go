package pool

import (
	"cmp"
	"slices"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/core"
	"github.com/yardmaster/yardmaster/internal/policy"
	"github.com/yardmaster/yardmaster/internal/scaling"
)

// Decide returns what to do about a WorkerPool.
func Decide(observation Observation) Decision {
	e := newEvaluation(observation)
	e.decision.KeepFinalizer = true
	switch e.problem = e.findProblem(); {
	case e.isDeleting():
		e.drainForDeletion()
	case e.problem == nil:
		e.scaleAndRollOut()
	}
	e.updateStatus()
	e.decision.Status, e.decision.Memory = e.status, e.memory
	e.decision.StatusDeferrable = differsInStatsOnly(&e.observation.Pool.Status, &e.status) && !e.decision.changesCluster()
	e.decision.Events = e.eventsSinceStatus()
	e.decision.RequeueAfter = e.requeueAfter()
	return e.decision
}

// evaluation is the state of one call of Decide.
type evaluation struct {
	observation Observation
	now         time.Time
	effective   *v1alpha1.WorkerPoolEffective
	drain       v1alpha1.Drain
	rollout     v1alpha1.Rollout
	status      v1alpha1.WorkerPoolStatus
	memory      scaling.Memory
	decision    Decision
	problem     *core.Problem

	// revisions that exist, and the one that the spec asks for, newest first.
	revisions []*revisionState
	// updated is the revision that the spec asks for.
	updated *revisionState
	// desired number of workers.
	desired int32
	// scalingDecision that led to desired; nil without autoscaling.
	scalingDecision *scaling.Decision
	// replicaLimit is the upper bound that Policies and the spec set.
	replicaLimit    int32
	rolloutComplete bool
}

func newEvaluation(observation Observation) *evaluation {
	wp := observation.Pool
	effective := policy.EffectiveWorkerPool(wp, observation.Policies)
	e := &evaluation{
		observation: observation,
		now:         observation.Now.Truncate(time.Second), // the precision of the stored times
		effective:   effective,
		drain:       *effective.Drain,
		rollout:     rolloutSettings(wp),
		status:      *wp.Status.DeepCopy(),
		memory:      observation.Memory,
	}
	for _, r := range observation.Revisions {
		e.revisions = append(e.revisions, &revisionState{Revision: r, exists: true, newReplicas: r.Replicas, newHistory: r.History})
	}
	for i := range observation.Workers {
		e.addWorker(&observation.Workers[i])
	}
	e.findUpdatedRevision()
	slices.SortStableFunc(e.revisions, func(a, b *revisionState) int {
		return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(a.Name, b.Name))
	})
	e.desired = wp.Status.Desired
	if wp.Status.ObservedGeneration <= 0 { // no status was stored yet, or it was lost
		e.desired = e.servingWorkers()
	}
	return e
}

// addWorker adds a worker to its revision. A worker whose revision was deleted is ignored: the
// garbage collector deletes it.
func (e *evaluation) addWorker(w *Worker) {
	i := slices.IndexFunc(e.revisions, func(r *revisionState) bool { return r.Hash == w.Revision })
	if i < 0 {
		return
	}
	if w.Terminating {
		e.revisions[i].terminating++
		return
	}
	e.revisions[i].workers = append(e.revisions[i].workers, &workerState{w, w.DrainingSince, w.IdleSince, w.RemovableSince})
}

// findUpdatedRevision finds the revision that the spec asks for, or adds it.
func (e *evaluation) findUpdatedRevision() {
	builder := e.workloadBuilder()
	workload, hash := builder.buildWorkload()
	i := slices.IndexFunc(e.revisions, func(r *revisionState) bool { return r.Hash == hash })
	if i < 0 {
		e.revisions = append(e.revisions, &revisionState{Revision: Revision{
			Name: workload.GetName(), Hash: hash, Created: e.now,
			Version: builder.pool.Spec.Version, Image: builder.workerImage(),
			Ordered: builder.pool.Spec.Workload == v1alpha1.WorkloadStatefulSet,
		}})
		i = len(e.revisions) - 1
	}
	e.updated = e.revisions[i]
	e.updated.workload = workload
	for _, r := range e.revisions {
		if r != e.updated {
			r.newHistory = History{} // a later rollout to it starts from the beginning
		}
	}
}

func (e *evaluation) workloadBuilder() *workloadBuilder {
	return &workloadBuilder{pool: e.observation.Pool, drain: e.drain, config: e.observation.Config, operator: e.observation.Operator}
}

func (e *evaluation) isDeleting() bool { return !e.observation.Pool.DeletionTimestamp.IsZero() }

// scaleAndRollOut plans all actions of a pool that is not being deleted.
func (e *evaluation) scaleAndRollOut() {
	e.decideDesired()
	e.planRollout()
	for _, r := range e.revisions {
		e.planRevision(r)
	}
	e.decision.SharedObjects = e.workloadBuilder().sharedObjects()
	if e.updated.exists {
		e.decision.CurrentWorkload = e.updated.workload
	}
	e.planResizes()
	e.deleteOldRevisions()
}

// drainForDeletion drains all workers of a pool that is being deleted. Problems are ignored:
// nobody is expected to fix the spec of a deleted pool.
func (e *evaluation) drainForDeletion() {
	e.problem = nil
	e.desired, e.rolloutComplete = 0, true
	e.memory, e.status.Scaling = scaling.Memory{}, nil
	remaining := int32(0)
	for _, r := range e.revisions {
		r.servingTarget = 0
		e.planRevision(r)
		remaining += r.totalWorkers() + r.terminating
	}
	e.planResizes()
	e.decision.KeepFinalizer = remaining > 0
}

// planResizes plans changes of the revisions' replicas and histories. Revisions that shrink
// come first, so that their capacity is free when others grow.
func (e *evaluation) planResizes() {
	changes := map[string]int32{}
	for _, r := range e.revisions {
		unchanged := r.exists && r.newReplicas == r.Replicas && r.newHistory == r.History
		if unchanged || !r.exists && r != e.updated {
			continue
		}
		size := RevisionSize{Name: r.Name, Replicas: r.newReplicas, History: r.newHistory, Ordered: r.Ordered}
		changes[r.Name] = r.newReplicas - r.Replicas
		if !r.exists {
			size.NewWorkload = r.workload
		}
		for _, w := range r.workers {
			if w.RemovableSince.IsZero() || !e.canRemove(w) {
				continue
			}
			size.Removable = append(size.Removable, w.Name)
			if !w.Running {
				size.Unstarted = append(size.Unstarted, w.Name)
			}
		}
		e.decision.Resizes = append(e.decision.Resizes, size)
	}
	slices.SortStableFunc(e.decision.Resizes, func(a, b RevisionSize) int {
		return cmp.Compare(changes[a.Name], changes[b.Name])
	})
}

// deleteOldRevisions plans the deletion of empty revisions beyond rollout.revisionHistory.
func (e *evaluation) deleteOldRevisions() {
	keep := int32(defaultRevisionHistory)
	if e.rollout.RevisionHistory != nil {
		keep = *e.rollout.RevisionHistory
	}
	for _, r := range e.revisions { // newest first
		if r == e.updated || r.Name == e.status.CurrentRevision || !r.exists || !r.isEmpty() {
			continue
		}
		keep--
		if keep < 0 {
			e.decision.DeleteRevisions = append(e.decision.DeleteRevisions, r.Name)
		}
	}
}

func (e *evaluation) sumOfRevisions(count func(*revisionState) int32) int32 {
	total := int32(0)
	for _, r := range e.revisions {
		total += count(r)
	}
	return total
}

func (e *evaluation) servingWorkers() int32 { return e.sumOfRevisions((*revisionState).servingWorkers) }

func (e *evaluation) availableWorkers() int32 {
	return e.sumOfRevisions((*revisionState).availableWorkers)
}
