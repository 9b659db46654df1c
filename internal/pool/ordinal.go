package pool

import (
	"cmp"
	"math"
	"slices"
)

// lowestRemovableOrdinal is the lowest number of a worker that leaves: from there on all have to go before
// others can come.
func (r *revisionState) lowestRemovableOrdinal() int32 {
	lowest := int32(math.MaxInt32)
	for _, w := range r.workers {
		if r.Ordered && !w.targetRemovable.IsZero() {
			lowest = min(lowest, w.Ordinal)
		}
	}
	return lowest
}

// drainHighestOrdinals has those workers drain that have to go first. A worker that its node took
// with it comes back above others that drain.
func (d *evaluation) drainHighestOrdinals(r *revisionState) {
	if !r.Ordered {
		return
	}
	slices.SortFunc(r.workers, func(a, b *workerState) int { return cmp.Compare(b.Ordinal, a.Ordinal) })
	floor := r.lowestRemovableOrdinal()
	for i, w := range r.workers {
		if !w.isServing() {
			continue
		}
		if w.Ordinal > floor {
			w.targetDraining = d.now
			continue
		}
		lower := slices.IndexFunc(r.workers[i:], func(other *workerState) bool { return !other.targetDraining.IsZero() && other.targetRemovable.IsZero() })
		if lower < 0 {
			return
		}
		w.targetDraining = d.now
		r.workers[i+lower].undrain()
	}
}
