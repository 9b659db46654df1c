package pool

import (
	"slices"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// minProvenIdleTime is how long the first worker of a new revision must be ready without
// messages before it counts as proven.
const minProvenIdleTime = 30 * time.Second

// planRollout decides how many workers of each revision should take messages.
func (e *evaluation) planRollout() {
	history := &e.updated.newHistory
	switch proven := e.provenWorkers(); {
	case e.status.CurrentRevision == e.updated.Name: // a rollback to a revision that served before needs no proof
		history.ProvenWorkers = max(1, history.ProvenWorkers)
	case proven > history.ProvenWorkers:
		history.ProvenWorkers, history.LastProgress = proven, e.now
	}
	stable := e.stableRevision()
	switch {
	case stable == nil, e.isFullyReplaced():
		e.completeRollout()
	case history.FailureMessage != "":
		e.replaceWorkers(stable, 0)
	case e.rollout.Strategy == v1alpha1.RolloutRecreate:
		e.recreateWorkers()
	case e.rollout.Strategy == v1alpha1.RolloutCanary && e.status.CurrentRevision != e.updated.Name:
		e.advanceCanary(stable)
	default:
		e.replaceWorkers(stable, e.desired)
	}
}

// stableRevision returns the revision that served before the rollout, or else any other
// revision with workers; nil if none exists.
func (e *evaluation) stableRevision() *revisionState {
	var found *revisionState
	for _, r := range e.revisions {
		switch {
		case r == e.updated || !r.exists:
		case r.Name == e.status.CurrentRevision:
			return r
		case found == nil && r.totalWorkers() > 0:
			found = r
		}
	}
	return found
}

// provenWorkers counts the workers of the updated revision that have proven to work. A worker
// must be ready. As long as no worker is proven, one of them must also have handled a message,
// or have been idle for a while.
func (e *evaluation) provenWorkers() int32 {
	revisionWorks := e.updated.newHistory.ProvenWorkers > 0 || slices.ContainsFunc(e.updated.workers, func(w *workerState) bool {
		return w.Stats != nil && w.Stats.Succeeded != nil && *w.Stats.Succeeded > 0
	})
	return e.updated.countWorkers(func(w *workerState) bool {
		if !w.isServing() || !w.IsReady() {
			return false
		}
		idle := w.Stats == nil || w.Stats.InFlight == 0
		return revisionWorks || idle && e.now.Sub(w.ReadySince) >= minProvenIdleTime
	})
}

// isFullyReplaced reports whether the updated revision is proven and has replaced all others.
// Strategy Recreate needs no proof, as the old revision has no workers to return to.
func (e *evaluation) isFullyReplaced() bool {
	for _, r := range e.revisions {
		if r != e.updated && r.totalWorkers() > 0 {
			return false
		}
	}
	if e.rollout.Strategy == v1alpha1.RolloutRecreate {
		return e.sumOfRevisions(func(r *revisionState) int32 { return r.terminating }) == e.updated.terminating
	}
	history := &e.updated.newHistory
	return history.ProvenWorkers > 0 && history.FailureMessage == "" && e.provenWorkers() >= e.desired
}

// completeRollout makes the updated revision the only one that serves.
func (e *evaluation) completeRollout() {
	e.rolloutComplete = true
	e.status.CurrentRevision = e.updated.Name
	// Set here, the history needs no second write after the revision is created.
	e.updated.newHistory.ProvenWorkers = max(1, e.updated.newHistory.ProvenWorkers)
	for _, r := range e.revisions {
		r.servingTarget = 0
	}
	e.updated.servingTarget = e.desired
}

// recreateWorkers starts the updated revision once no worker of another one is left.
func (e *evaluation) recreateWorkers() {
	for _, r := range e.revisions {
		r.servingTarget = 0
	}
	e.updated.servingTarget = min(e.updated.servingWorkers(), e.desired)
}

// maxSurge is how many workers more than desired may exist.
func (e *evaluation) maxSurge() int32 {
	return resolveIntOrPercent(e.rollout.MaxSurge, defaultMaxSurge, e.desired, true)
}

// maxUnavailable is how many workers fewer than desired may serve.
func (e *evaluation) maxUnavailable() int32 {
	return resolveIntOrPercent(e.rollout.MaxUnavailable, "0", e.desired, false)
}

// surgeRoom is how many more workers may be created now. Draining workers count as existing.
func (e *evaluation) surgeRoom() int32 {
	return max(0, e.desired+e.maxSurge()-e.sumOfRevisions((*revisionState).totalWorkers))
}

// replaceWorkers moves towards the target number of workers of the updated revision, within
// maxSurge and maxUnavailable. Until the updated revision is proven, it gets only a first batch
// of workers, and the old revision grows if more workers are needed.
func (e *evaluation) replaceWorkers(stable *revisionState, target int32) {
	proven := e.updated.newHistory.ProvenWorkers > 0
	batch := target
	if !proven {
		batch = min(target, max(1, e.maxSurge()))
	}
	serving, undrainable, room := e.updated.servingWorkers(), e.updated.undrainableWorkers(), e.surgeRoom()
	updated := min(target, max(serving, min(batch, serving+max(room, undrainable))))
	room -= max(0, updated-serving-undrainable)

	old := e.servingWorkers() - serving
	sufficient := max(e.desired-target, e.desired-e.maxUnavailable()-min(e.provenWorkers(), target))
	minimum := e.desired - target
	if !proven {
		minimum = sufficient
	}
	switch {
	case old > sufficient:
		old = sufficient
	case old < minimum:
		old = min(minimum, old+max(room, stable.undrainableWorkers()))
	}
	e.updated.servingTarget = updated
	e.divideOldWorkers(stable, old)
}

// divideOldWorkers divides the old workers among the old revisions, the stable revision first.
func (e *evaluation) divideOldWorkers(stable *revisionState, old int32) {
	stable.servingTarget = old
	others := int32(0)
	for _, r := range e.revisions {
		if r == e.updated || r == stable {
			continue
		}
		// Other revisions serve only while the stable revision has too few workers.
		r.servingTarget = min(r.servingWorkers(), max(0, old-stable.servingWorkers()-others))
		others += r.servingTarget
	}
	stable.servingTarget -= others
}
