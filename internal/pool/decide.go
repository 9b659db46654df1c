package pool

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/scaling"
)

// Decide plans the next moves of a WorkerPool.
func Decide(in Observation) Decision {
	d := newEvaluation(in)
	d.decision.KeepFinalizer = true
	switch d.problem = d.findProblem(); {
	case !in.Pool.DeletionTimestamp.IsZero():
		d.drainForDeletion()
	case d.problem == nil:
		d.scaleAndRollOut()
	}
	d.buildStatus()
	d.decision.Status, d.decision.Memory = d.status, d.memory
	d.decision.StatusDeferrable = differsInStatsOnly(&in.Pool.Status, &d.status) && !d.decision.changesCluster()
	d.decision.Events = d.eventsSinceStatus()
	d.decision.RequeueAfter = d.requeueAfter()
	return d.decision
}

// evaluation is one call of Decide on its way.
type evaluation struct {
	observation Observation
	now         time.Time
	drain       v1alpha1.Drain
	rollout     v1alpha1.Rollout
	status      v1alpha1.WorkerPoolStatus
	memory      scaling.Memory
	decision    Decision
	problem     *Problem

	// revisions that there are, and the one of the spec, the newest first.
	revisions []*revisionState
	updated   *revisionState
	// desired number of workers, and what was decided to come to it.
	desired         int32
	scalingDecision *scaling.Decision
	replicaLimit    int32
	rolloutComplete bool
}

// revisionState is one with its workers.
type revisionState struct {
	Revision
	// exists: it has been made.
	exists bool
	// workload it is to be made as, if it is the one of the spec.
	workload Object
	// workers that have not been deleted, and how many have and still finish.
	workers     []*workerState
	terminating int32
	// servingTarget workers that take messages, and replicas to ask for.
	servingTarget, newReplicas int32
	newHistory                 History
}

// workerState is one with where it is to stand.
type workerState struct {
	*Worker
	targetDraining, targetIdle, targetRemovable time.Time
}

func (w *workerState) isServing() bool {
	return w.targetDraining.IsZero() && w.targetRemovable.IsZero()
}

func newEvaluation(in Observation) *evaluation {
	d := &evaluation{
		observation: in,
		now:         in.Now.Truncate(time.Second), // as it is stored
		drain:       effectiveDrain(in.Pool, in.Effective),
		rollout:     rolloutSettings(in.Pool),
		status:      *in.Pool.Status.DeepCopy(),
		memory:      in.Memory,
	}
	for _, r := range in.Revisions {
		d.revisions = append(d.revisions, &revisionState{Revision: r, exists: true, newReplicas: r.Replicas, newHistory: r.History})
	}
	for i := range in.Workers {
		d.addWorker(&in.Workers[i])
	}
	d.findUpdatedRevision()
	slices.SortStableFunc(d.revisions, func(a, b *revisionState) int {
		return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(a.Name, b.Name))
	})
	d.desired = in.Pool.Status.Desired
	if in.Pool.Status.ObservedGeneration == 0 { // no status was ever stored, or it is lost
		d.desired = d.servingWorkers()
	}
	return d
}

// addWorker gives a worker to its revision.
func (d *evaluation) addWorker(w *Worker) {
	i := slices.IndexFunc(d.revisions, func(r *revisionState) bool { return r.Hash == w.Revision })
	if i < 0 { // its revision was deleted by somebody, and it goes, too
		return
	}
	if w.Terminating {
		d.revisions[i].terminating++
		return
	}
	d.revisions[i].workers = append(d.revisions[i].workers, &workerState{w, w.DrainingSince, w.IdleSince, w.RemovableSince})
}

// findUpdatedRevision finds the revision that the spec asks for, or begins it.
func (d *evaluation) findUpdatedRevision() {
	template := d.buildTemplate()
	hash := d.templateHash(&template)
	setRevisionHash(&template, hash)
	workload := d.buildWorkload(&template, hash)
	i := slices.IndexFunc(d.revisions, func(r *revisionState) bool { return r.Hash == hash })
	if i < 0 {
		d.revisions = append(d.revisions, &revisionState{Revision: Revision{
			Name: workload.GetName(), Hash: hash, Created: d.now,
			Version: d.observation.Pool.Spec.Version, Image: d.workerImage(),
			Ordered: d.observation.Pool.Spec.Workload == v1alpha1.WorkloadStatefulSet,
		}})
		i = len(d.revisions) - 1
	}
	d.updated = d.revisions[i]
	d.updated.workload = workload
	for _, r := range d.revisions {
		if r != d.updated {
			r.newHistory = History{} // whoever comes back to it begins anew
		}
	}
}

// findProblem is what keeps the pool from doing what its spec says.
func (d *evaluation) findProblem() *Problem {
	if problem := d.specProblem(); problem != nil {
		return problem
	}
	return d.observation.Problem
}

// scaleAndRollOut takes a pool that is not being deleted as far as it goes.
func (d *evaluation) scaleAndRollOut() {
	d.scaleAutomatically()
	d.planRollout()
	for _, r := range d.revisions {
		d.planRevision(r)
	}
	d.decision.SharedObjects = d.sharedObjects()
	if d.updated != nil && d.updated.exists {
		d.decision.CurrentWorkload = d.updated.workload
	}
	d.planResizes()
	d.deleteOldRevisions()
}

// planResizes plans what replicas and past the revisions are to have. All that shrink come
// first: what they give up is what others may have.
func (d *evaluation) planResizes() {
	for _, r := range d.revisions {
		if r.exists && r.newReplicas == r.Replicas && r.newHistory == r.History {
			continue
		}
		if !r.exists && r != d.updated {
			continue
		}
		size := RevisionSize{Name: r.Name, Replicas: r.newReplicas, History: r.newHistory, Ordered: r.Ordered}
		if !r.exists {
			size.NewWorkload = r.workload
		}
		for _, w := range r.workers {
			if w.RemovableSince.IsZero() || !d.canRemove(w) {
				continue
			}
			size.Removable = append(size.Removable, w.Name)
			if !w.Running {
				size.Unstarted = append(size.Unstarted, w.Name)
			}
		}
		d.decision.Resizes = append(d.decision.Resizes, size)
	}
	slices.SortStableFunc(d.decision.Resizes, func(a, b RevisionSize) int {
		return cmp.Compare(d.replicaChange(a), d.replicaChange(b))
	})
}

func (d *evaluation) replicaChange(s RevisionSize) int32 {
	for _, r := range d.revisions {
		if r.Name == s.Name && r.exists {
			return s.Replicas - r.Replicas
		}
	}
	return s.Replicas
}

// deleteOldRevisions removes old revisions that have no workers, but for those to go back to.
func (d *evaluation) deleteOldRevisions() {
	keep := int32(defaultRevisionHistory)
	if d.rollout.RevisionHistory != nil {
		keep = *d.rollout.RevisionHistory
	}
	for _, r := range d.revisions { // the newest first
		if r == d.updated || r.Name == d.status.CurrentRevision || !r.exists || !r.isEmpty() {
			continue
		}
		keep--
		if keep < 0 {
			d.decision.DeleteRevisions = append(d.decision.DeleteRevisions, r.Name)
		}
	}
}

// isEmpty tells whether nothing of the revision is there or asked for.
func (r *revisionState) isEmpty() bool {
	return r.Replicas == 0 && r.newReplicas == 0 && len(r.workers) == 0 && r.terminating == 0
}

// totalWorkers is how many workers there are or will be, those included that have not gone yet.
func (r *revisionState) totalWorkers() int32 { return max(r.Replicas, r.liveWorkers()) }

// liveWorkers workers have not been deleted.
func (r *revisionState) liveWorkers() int32 {
	return r.countWorkers(func(*workerState) bool { return true })
}

// uncreatedWorkers workers are asked for and not made yet.
func (r *revisionState) uncreatedWorkers() int32 { return r.totalWorkers() - r.liveWorkers() }

// countWorkers of workers that the test is true of.
func (r *revisionState) countWorkers(is func(*workerState) bool) int32 {
	number := int32(0)
	for _, w := range r.workers {
		if is(w) {
			number++
		}
	}
	return number
}

// servingWorkers workers take messages, or will.
func (r *revisionState) servingWorkers() int32 {
	return r.countWorkers((*workerState).isServing) + r.uncreatedWorkers()
}

// availableWorkers workers take messages now.
func (r *revisionState) availableWorkers() int32 {
	return r.countWorkers(func(w *workerState) bool { return w.isServing() && w.IsReady() })
}

func (d *evaluation) sumOfRevisions(of func(*revisionState) int32) int32 {
	total := int32(0)
	for _, r := range d.revisions {
		total += of(r)
	}
	return total
}

func (d *evaluation) servingWorkers() int32 { return d.sumOfRevisions((*revisionState).servingWorkers) }

func (d *evaluation) availableWorkers() int32 {
	return d.sumOfRevisions((*revisionState).availableWorkers)
}

// changesCluster reports whether the plan changes anything but the status.
func (p *Decision) changesCluster() bool {
	return len(p.DrainStates)+len(p.DrainRequests)+len(p.Resizes)+len(p.DeleteRevisions) > 0 || !p.KeepFinalizer
}

const (
	// idleInterval is how often a pool is looked at that nothing is due for.
	idleInterval = 15 * time.Second
	// sourceInterval is how often a source is asked whether there is something to do again: of its
	// first message nobody tells.
	sourceInterval = 5 * time.Second
)

// requeueAfter until the next look: what changes at the broker and in workers is not told.
// A pool that sleeps is woken by its queues.
func (d *evaluation) requeueAfter() time.Duration {
	busy := d.sumOfRevisions(func(r *revisionState) int32 { return r.totalWorkers() + r.terminating }) > 0
	deleting := !d.observation.Pool.DeletionTimestamp.IsZero()
	switch {
	case deleting && !d.decision.KeepFinalizer:
		return 0
	case busy || deleting || d.desired > 0:
		if d.problem != nil || d.observation.Pool.Spec.Autoscaling == nil && !d.isChanging() && !deleting {
			return idleInterval
		}
		return scaling.DecisionInterval
	case d.problem != nil, d.observation.Stats == nil && d.observation.Pool.Spec.Autoscaling != nil, d.hasOutstandingMessages():
		return idleInterval
	case d.observation.Pool.Spec.Source != nil && d.observation.Pool.Spec.Autoscaling != nil:
		return sourceInterval
	default:
		return 0
	}
}

// isChanging tells whether workers come, go, or are to be proven.
func (d *evaluation) isChanging() bool {
	return !d.rolloutComplete || d.decision.changesCluster() || d.status.Draining > 0 || d.availableWorkers() < d.desired || d.servingWorkers() != d.desired
}

// hasOutstandingMessages tells whether something is due of which no message tells.
func (d *evaluation) hasOutstandingMessages() bool {
	f := d.observation.Stats
	return f != nil && d.observation.Pool.Spec.Autoscaling != nil && f.Backlog+f.InFlight+f.Delayed > 0
}

// startFailureReasons are the reasons for which a container does not start before somebody has
// changed something, by what they mean.
var startFailureReasons = map[string]string{
	"ErrImagePull":               v1alpha1.ReasonImagePull,
	"ImagePullBackOff":           v1alpha1.ReasonImagePull,
	"InvalidImageName":           v1alpha1.ReasonImagePull,
	"ErrImageNeverPull":          v1alpha1.ReasonImagePull,
	"CreateContainerConfigError": v1alpha1.ReasonCrashLoop,
	"CreateContainerError":       v1alpha1.ReasonCrashLoop,
	"CrashLoopBackOff":           v1alpha1.ReasonCrashLoop,
	"RunContainerError":          v1alpha1.ReasonCrashLoop,
}

// startFailure is why a revision's workers do not start; empty if they do.
func (r *revisionState) startFailure() (reason, message string) {
	for _, w := range r.workers {
		if reason := startFailureReasons[w.WaitingReason]; reason != "" {
			return reason, "worker " + w.Name + " waits: " + w.WaitingReason
		}
	}
	if r.CreationFailure != "" {
		return v1alpha1.ReasonMinimumUnavailable, r.CreationFailure
	}
	return "", ""
}

const (
	eventNormal  = corev1.EventTypeNormal
	eventWarning = corev1.EventTypeWarning
)
