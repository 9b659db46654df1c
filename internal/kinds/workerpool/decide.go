package workerpool

import (
	"slices"
	"time"

	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/policy"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool/scaling"
)

// defaultRevisionHistory is the default of rollout.revisionHistory.
const defaultRevisionHistory = 3

// Decide returns what to do about a WorkerPool.
func Decide(observation Observation) Decision {
	e := newEvaluation(observation)
	switch e.problem = findProblem(&observation, e.drain.Mode); {
	case e.isDeleting():
		e.drainForDeletion()
	case e.problem == nil:
		e.scaleAndRollOut()
	}
	e.updateStatus()
	decision := &e.decision
	decision.addStopRequests(observation.Workers, e.drain.Mode)
	decision.planProtections(&e.observation)
	decision.StatusDeferrable = differsInStatsOnly(&observation.Pool.Status, e.status) && !decision.changesCluster()
	decision.Events = e.eventsSinceStatus()
	decision.RequeueAfter = e.requeueAfter()
	return *decision
}

// evaluation is the state of one call of Decide.
type evaluation struct {
	observation Observation
	now         time.Time
	effective   *v1alpha1.WorkerPoolEffective
	drain       drainRules
	rollout     v1alpha1.Rollout
	builder     *workloadBuilder
	decision    Decision
	status      *v1alpha1.WorkerPoolStatus // of decision
	problem     *decision.Problem

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
	// comparison of the failures of the updated revision with those of the others.
	comparison comparison
}

func newEvaluation(observation Observation) *evaluation {
	wp := observation.Pool
	observation.Stats = observation.Stats.addWorkers(observation.Workers, workerConcurrency(wp))
	effective := policy.EffectiveWorkerPool(wp, &observation.Policies)
	e := &evaluation{
		observation: observation,
		now:         observation.Now.Truncate(time.Second), // the precision of the stored times
		effective:   effective,
		rollout:     ptr.Deref(wp.Spec.Rollout, v1alpha1.Rollout{}),
		builder:     &workloadBuilder{pool: wp, drain: *effective.Drain, defaultGrace: hasDefaultGrace(effective), config: observation.Config, operator: observation.Operator},
		decision:    Decision{Status: *wp.Status.DeepCopy(), Memory: observation.Memory, KeepFinalizer: true},
	}
	e.status = &e.decision.Status
	e.drain = drainRules{
		Drain: *effective.Drain, now: e.now, stats: observation.Stats, workers: observation.Workers,
		isAbandoned: e.isDeleting() && wp.Annotations[AnnotationAbandon] == "true",
	}
	e.revisions, e.updated = newRevisionStates(&observation, e.builder, e.now)
	e.desired = wp.Status.Desired
	if wp.Status.ObservedGeneration <= 0 { // no status was stored yet, or it was lost
		e.desired = sumOf(e.revisions, (*revisionState).servingWorkers)
	}
	return e
}

func hasDefaultGrace(effective *v1alpha1.WorkerPoolEffective) bool {
	return slices.Contains(effective.Sources, v1alpha1.FieldSource{Field: policy.DrainTerminationGrace, From: v1alpha1.FromDefault})
}

func (e *evaluation) isDeleting() bool { return !e.observation.Pool.DeletionTimestamp.IsZero() }

// scaleAndRollOut plans all actions of a pool that is not being deleted.
func (e *evaluation) scaleAndRollOut() {
	e.decideDesired()
	e.planRollout()
	e.planRevisions()
	e.decision.SharedObjects = e.builder.sharedObjects(e.updated, e.observation.NetworkPolicies)
	if e.updated.exists {
		e.decision.CurrentWorkload = e.updated.workload
	}
	keep := ptr.Deref(e.rollout.RevisionHistory, defaultRevisionHistory)
	e.decision.DeleteRevisions = unusedRevisions(e.revisions, keep, e.updated.Name, e.status.CurrentRevision)
}

// drainForDeletion drains all workers of a pool that is being deleted. Problems are ignored:
// nobody is expected to fix the spec of a deleted pool.
func (e *evaluation) drainForDeletion() {
	e.problem = nil
	e.desired, e.rolloutComplete = 0, true
	e.decision.Memory, e.status.Scaling = scaling.Memory{}, nil
	e.planRevisions()
	e.decision.KeepFinalizer = slices.ContainsFunc(e.revisions, (*revisionState).hasWorkers)
}

// planRevisions plans the replicas of all revisions and the drain states of their workers, so that
// each revision gets its target of serving workers.
func (e *evaluation) planRevisions() {
	for _, r := range e.revisions {
		r.planReplicas(&e.drain)
		e.decision.addDrainActions(r.workers, e.drain.Mode)
	}
	e.decision.Resizes = planResizes(e.revisions, &e.drain)
}

// unusedRevisions returns the names of the empty revisions that are not in use, except for the
// newest ones, which rollout.revisionHistory keeps. The revisions are sorted, newest first.
func unusedRevisions(revisions []*revisionState, keep int32, inUse ...string) []string {
	var names []string
	for _, r := range revisions {
		if r.isEmpty() && !slices.Contains(inUse, r.Name) {
			names = append(names, r.Name)
		}
	}
	return names[min(int(keep), len(names)):]
}
