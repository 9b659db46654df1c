package pool

import (
	"slices"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// minProvenIdleTime is how long the first worker of a new revision must have been ready, if it
// has had nothing to do, to be taken for one that works.
const minProvenIdleTime = 30 * time.Second

// planRollout decides how many workers each revision is to have.
func (d *evaluation) planRollout() {
	if d.status.CurrentRevision == d.updated.Name { // it served before: a way back needs no proof
		d.updated.newHistory.ProvenWorkers = max(1, d.updated.newHistory.ProvenWorkers)
	} else {
		d.recordProvenWorkers()
	}
	trusted := d.stableRevision()
	switch {
	case trusted == nil, d.isFullyReplaced():
		d.completeRollout()
	case d.updated.newHistory.FailureMessage != "":
		d.replaceWorkers(trusted, 0)
	case d.rollout.Strategy == v1alpha1.RolloutRecreate:
		d.recreateWorkers()
	case d.rollout.Strategy == v1alpha1.RolloutCanary && d.status.CurrentRevision != d.updated.Name:
		d.advanceCanary(trusted)
	default:
		d.replaceWorkers(trusted, d.desired)
	}
}

// stableRevision is the revision that served before the rollout, or else any other that has
// workers; nil if there is none.
func (d *evaluation) stableRevision() *revisionState {
	var found *revisionState
	for _, r := range d.revisions {
		switch {
		case r == d.updated || !r.exists:
		case r.Name == d.status.CurrentRevision:
			return r
		case found == nil && r.totalWorkers() > 0:
			found = r
		}
	}
	return found
}

// recordProvenWorkers notes how many workers of the new revision do what they are there for.
func (d *evaluation) recordProvenWorkers() {
	if proven := d.provenWorkers(); proven > d.updated.newHistory.ProvenWorkers {
		d.updated.newHistory.ProvenWorkers, d.updated.newHistory.LastProgress = proven, d.now
	}
}

// provenWorkers workers of the new revision are ready. For the first of them that is not enough:
// it must have had a success, or have been idle for a while.
func (d *evaluation) provenWorkers() int32 {
	works := d.updated.newHistory.ProvenWorkers > 0 || slices.ContainsFunc(d.updated.workers, func(w *workerState) bool {
		return w.Stats != nil && w.Stats.Succeeded != nil && *w.Stats.Succeeded > 0
	})
	return d.updated.countWorkers(func(w *workerState) bool {
		if !w.isServing() || !w.IsReady() {
			return false
		}
		idle := w.Stats == nil || w.Stats.InFlight == 0
		return works || idle && d.now.Sub(w.ReadySince) >= minProvenIdleTime
	})
}

// isFullyReplaced tells whether the rollout is over: the new revision has proven itself, and
// nothing is left of the others. Recreate asks for no proof: there is no way back.
func (d *evaluation) isFullyReplaced() bool {
	for _, r := range d.revisions {
		if r != d.updated && r.totalWorkers() > 0 {
			return false
		}
	}
	if d.rollout.Strategy == v1alpha1.RolloutRecreate {
		return d.sumOfRevisions(func(r *revisionState) int32 { return r.terminating }) == d.updated.terminating
	}
	return d.updated.newHistory.ProvenWorkers > 0 && d.updated.newHistory.FailureMessage == "" && d.provenWorkers() >= d.desired
}

// completeRollout has the new revision be the only one.
func (d *evaluation) completeRollout() {
	d.rolloutComplete = true
	d.status.CurrentRevision = d.updated.Name
	d.updated.newHistory.ProvenWorkers = max(1, d.updated.newHistory.ProvenWorkers) // here, so that the next pass need not write it
	for _, r := range d.revisions {
		r.servingTarget = 0
	}
	d.updated.servingTarget = d.desired
}

// recreateWorkers starts the new revision when nothing of the others is left.
func (d *evaluation) recreateWorkers() {
	for _, r := range d.revisions {
		r.servingTarget = 0
	}
	d.updated.servingTarget = min(d.updated.servingWorkers(), d.desired)
}

// maxSurge is how many workers more there may be, and spare how many fewer.
func (d *evaluation) maxSurge() int32 {
	return resolveIntOrPercent(d.rollout.MaxSurge, defaultMaxSurge, d.desired, true)
}

func (d *evaluation) maxUnavailable() int32 {
	return resolveIntOrPercent(d.rollout.MaxUnavailable, "0", d.desired, false)
}

// surgeRoom is how many workers more there may be now. Those that drain still count.
func (d *evaluation) surgeRoom() int32 {
	return max(0, d.desired+d.maxSurge()-d.sumOfRevisions((*revisionState).totalWorkers))
}

// replaceWorkers has so many workers be new, and the others old, as far as surge and spare let
// it. Until the new revision has proven itself there is only a first batch of it, and
// it is the old one that grows when more workers are needed.
func (d *evaluation) replaceWorkers(trusted *revisionState, target int32) {
	batch := target
	if d.updated.newHistory.ProvenWorkers == 0 {
		batch = min(target, max(1, d.maxSurge()))
	}
	serving, room := d.updated.servingWorkers(), d.surgeRoom()
	fresh := min(target, max(serving, min(batch, serving+max(room, d.updated.undrainableWorkers()))))
	room -= max(0, fresh-serving-d.updated.undrainableWorkers())

	old := d.servingWorkers() - serving
	enough := max(d.desired-target, d.desired-d.maxUnavailable()-min(d.provenWorkers(), target))
	least := d.desired - target
	if d.updated.newHistory.ProvenWorkers == 0 {
		least = enough
	}
	switch {
	case old > enough:
		old = enough
	case old < least:
		old = min(least, old+max(room, trusted.undrainableWorkers()))
	}
	d.divideOldWorkers(trusted, old, fresh)
}

// undrainableWorkers workers drain, and can be called back.
func (r *revisionState) undrainableWorkers() int32 {
	return r.countWorkers(func(w *workerState) bool { return !w.targetDraining.IsZero() && w.targetRemovable.IsZero() })
}

// divideOldWorkers divides the old workers among the old revisions: the trusted one has them first.
func (d *evaluation) divideOldWorkers(trusted *revisionState, old, fresh int32) {
	d.updated.servingTarget = fresh
	trusted.servingTarget = old
	others := int32(0)
	for _, r := range d.revisions {
		if r == d.updated || r == trusted {
			continue
		}
		// What another serves the trusted one need not, while it has too few of its own.
		r.servingTarget = min(r.servingWorkers(), max(0, old-trusted.servingWorkers()-others))
		others += r.servingTarget
	}
	trusted.servingTarget -= others
}
