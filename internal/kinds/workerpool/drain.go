package workerpool

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// planReplicas plans the replicas of a revision, and the drain states of its workers.
func (r *revisionState) planReplicas(rules *drainRules) {
	r.drainHighestOrdinals(rules.now)
	r.updateIdleTimes(rules.now)
	removed := r.removableWorkers(rules)
	switch surplus := r.servingWorkers() - r.servingTarget; {
	case removed > 0:
		// The revision grows only after they are removed: otherwise it would keep them.
		r.newReplicas = min(r.Replicas, r.liveWorkers()-removed)
	case surplus < 0:
		surplus += r.undrain(-surplus)
		if r.lowestRemovableOrdinal() == math.MaxInt32 {
			r.newReplicas = max(r.Replicas, r.totalWorkers()-surplus)
		}
		r.markRemovable(rules)
	case surplus > 0 && r.CreationFailure != "" && r.uncreatedWorkers() > 0:
		r.newReplicas = r.Replicas - min(r.uncreatedWorkers(), surplus)
	default:
		// Workers that are not created yet are not drained. If they turn out to be too many,
		// they are removed after their creation, before they take messages.
		r.startDraining(surplus-r.uncreatedWorkers(), rules.now)
		r.markRemovable(rules)
	}
}

// updateIdleTimes records which draining workers report that they have nothing in flight. A
// worker that reported it and does not answer now keeps its idle time: it takes no messages, and
// a late answer must not restart the wait for its lease.
func (r *revisionState) updateIdleTimes(now time.Time) {
	for _, w := range r.workers {
		switch {
		case w.targetDraining.IsZero(), w.Stats != nil && (!w.Stats.Drained || w.Stats.InFlight > 0):
			w.targetIdle = time.Time{}
		case w.Stats != nil && w.targetIdle.IsZero():
			w.targetIdle = now
		}
	}
}

// startDraining selects workers to drain.
func (r *revisionState) startDraining(count int32, now time.Time) {
	candidates := slices.DeleteFunc(slices.Clone(r.workers), func(w *workerState) bool { return !w.isServing() })
	slices.SortStableFunc(candidates, ordinalOrderOr(r.Ordered, compareDrainCost))
	for _, w := range candidates[:min(max(int(count), 0), len(candidates))] {
		w.targetDraining = now
	}
}

// undrain undrains up to count workers, those that started draining last first. It returns how
// many it undrained.
func (r *revisionState) undrain(count int32) int32 {
	lowest := r.lowestRemovableOrdinal()
	candidates := slices.DeleteFunc(slices.Clone(r.workers), func(w *workerState) bool {
		return !w.isUndrainable() || w.Ordinal > lowest
	})
	slices.SortStableFunc(candidates, func(a, b *workerState) int {
		if r.Ordered {
			return cmp.Compare(a.Ordinal, b.Ordinal)
		}
		return cmp.Or(b.targetDraining.Compare(a.targetDraining), a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
	})
	undrained := candidates[:min(int(count), len(candidates))]
	for _, w := range undrained {
		w.undrain()
	}
	return int32(len(undrained)) //nolint:gosec // at most count
}

// markRemovable marks the workers that have finished. They are removed in a later
// reconciliation that has read the mark from their Pods: the ReplicaSet controller removes the
// Pods that carry it first.
func (r *revisionState) markRemovable(rules *drainRules) {
	for _, w := range r.workers {
		if w.isUndrainable() && rules.canRemove(w) {
			w.targetRemovable = rules.now
		}
	}
}

// removableWorkers returns how many workers can be removed now: all of them are marked as
// removable, have finished, and are the first that the workload controller would remove.
func (r *revisionState) removableWorkers(rules *drainRules) int32 {
	order, compare := slices.Clone(r.workers), ordinalOrderOr(r.Ordered, compareRemovalOrder)
	slices.SortStableFunc(order, compare)
	removable, examined := int32(0), int32(0)
	for i, w := range order {
		if w.RemovableSince.IsZero() || !rules.canRemove(w) {
			break
		}
		examined++
		// The controller may remove either of two workers that compare as equal.
		if i+1 == len(order) || compare(w, order[i+1]) < 0 {
			removable = examined
		}
	}
	return removable
}

// drainHighestOrdinals makes the highest ordinals of a StatefulSet drain, because it removes
// those first. A worker that was recreated after its node failed may have a higher ordinal than
// workers that drain: then it drains instead of one of those.
func (r *revisionState) drainHighestOrdinals(now time.Time) {
	if !r.Ordered {
		return
	}
	slices.SortFunc(r.workers, func(a, b *workerState) int { return cmp.Compare(b.Ordinal, a.Ordinal) })
	lowest := r.lowestRemovableOrdinal()
	for i, w := range r.workers {
		if !w.isServing() {
			continue
		}
		if w.Ordinal > lowest {
			w.targetDraining = now
			continue
		}
		lower := slices.IndexFunc(r.workers[i:], (*workerState).isUndrainable)
		if lower < 0 {
			return
		}
		w.targetDraining = now
		r.workers[i+lower].undrain()
	}
}
