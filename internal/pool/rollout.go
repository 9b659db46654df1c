package pool

import (
	"slices"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// provingIdle is how long the first worker of a new revision must have been ready, if it
// has had nothing to do, to be taken for one that works.
const provingIdle = 30 * time.Second

// rollOut decides how many workers each revision is to have.
func (d *decision) rollOut() {
	if d.status.CurrentRevision == d.updated.Name { // it served before: a way back needs no proof
		d.updated.past.Proven = max(1, d.updated.past.Proven)
	} else {
		d.prove()
	}
	trusted := d.trusted()
	switch {
	case trusted == nil, d.replaced():
		d.finishRollout()
	case d.updated.past.Failed != "":
		d.replace(trusted, 0)
	case d.rollout.Strategy == v1alpha1.RolloutRecreate:
		d.recreate()
	case d.rollout.Strategy == v1alpha1.RolloutCanary && d.status.CurrentRevision != d.updated.Name:
		d.canary(trusted)
	default:
		d.replace(trusted, d.desired)
	}
}

// trusted is the revision that served before the rollout, or else any other that has
// workers; nil if there is none.
func (d *decision) trusted() *revision {
	var found *revision
	for _, r := range d.revisions {
		switch {
		case r == d.updated || !r.there:
		case r.Name == d.status.CurrentRevision:
			return r
		case found == nil && r.total() > 0:
			found = r
		}
	}
	return found
}

// prove notes how many workers of the new revision do what they are there for.
func (d *decision) prove() {
	if proven := d.proven(); proven > d.updated.past.Proven {
		d.updated.past.Proven, d.updated.past.Progressed = proven, d.now
	}
}

// proven workers of the new revision are ready. For the first of them that is not enough:
// it must have had a success, or have been idle for a while.
func (d *decision) proven() int32 {
	works := d.updated.past.Proven > 0 || slices.ContainsFunc(d.updated.workers, func(w *worker) bool {
		return w.Stats != nil && w.Stats.Succeeded != nil && *w.Stats.Succeeded > 0
	})
	return d.updated.count(func(w *worker) bool {
		if !w.serves() || !w.Ready() {
			return false
		}
		idle := w.Stats == nil || w.Stats.InFlight == 0
		return works || idle && d.now.Sub(w.ReadySince) >= provingIdle
	})
}

// replaced tells whether the rollout is over: the new revision has proven itself, and
// nothing is left of the others. Recreate asks for no proof: there is no way back.
func (d *decision) replaced() bool {
	for _, r := range d.revisions {
		if r != d.updated && r.total() > 0 {
			return false
		}
	}
	if d.rollout.Strategy == v1alpha1.RolloutRecreate {
		return d.sum(func(r *revision) int32 { return r.terminating }) == d.updated.terminating
	}
	return d.updated.past.Proven > 0 && d.updated.past.Failed == "" && d.proven() >= d.desired
}

// finishRollout has the new revision be the only one.
func (d *decision) finishRollout() {
	d.complete = true
	d.status.CurrentRevision = d.updated.Name
	d.updated.past.Proven = max(1, d.updated.past.Proven) // here, so that the next pass need not write it
	for _, r := range d.revisions {
		r.wanted = 0
	}
	d.updated.wanted = d.desired
}

// recreate starts the new revision when nothing of the others is left.
func (d *decision) recreate() {
	for _, r := range d.revisions {
		r.wanted = 0
	}
	d.updated.wanted = min(d.updated.serving(), d.desired)
}

// surge is how many workers more there may be, and spare how many fewer.
func (d *decision) surge() int32 { return share(d.rollout.MaxSurge, defaultMaxSurge, d.desired, true) }

func (d *decision) spare() int32 { return share(d.rollout.MaxUnavailable, "0", d.desired, false) }

// room is how many workers more there may be now. Those that drain still count.
func (d *decision) room() int32 {
	return max(0, d.desired+d.surge()-d.sum((*revision).total))
}

// replace has so many workers be new, and the others old, as far as surge and spare let
// it. Until the new revision has proven itself there is only a first batch of it, and
// it is the old one that grows when more workers are needed.
func (d *decision) replace(trusted *revision, target int32) {
	batch := target
	if d.updated.past.Proven == 0 {
		batch = min(target, max(1, d.surge()))
	}
	serving, room := d.updated.serving(), d.room()
	fresh := min(target, max(serving, min(batch, serving+max(room, d.updated.callable()))))
	room -= max(0, fresh-serving-d.updated.callable())

	old := d.serving() - serving
	enough := max(d.desired-target, d.desired-d.spare()-min(d.proven(), target))
	least := d.desired - target
	if d.updated.past.Proven == 0 {
		least = enough
	}
	switch {
	case old > enough:
		old = enough
	case old < least:
		old = min(least, old+max(room, trusted.callable()))
	}
	d.share(trusted, old, fresh)
}

// callable workers drain, and can be called back.
func (r *revision) callable() int32 {
	return r.count(func(w *worker) bool { return !w.draining.IsZero() && w.leaving.IsZero() })
}

// share divides the old workers among the old revisions: the trusted one has them first.
func (d *decision) share(trusted *revision, old, fresh int32) {
	d.updated.wanted = fresh
	trusted.wanted = old
	others := int32(0)
	for _, r := range d.revisions {
		if r == d.updated || r == trusted {
			continue
		}
		// What another serves the trusted one need not, while it has too few of its own.
		r.wanted = min(r.serving(), max(0, old-trusted.serving()-others))
		others += r.wanted
	}
	trusted.wanted -= others
}
