package pool

import (
	"cmp"
	"math"
	"slices"
)

// floor is the lowest number of a worker that leaves: from there on all have to go before
// others can come.
func (r *revision) floor() int32 {
	lowest := int32(math.MaxInt32)
	for _, w := range r.workers {
		if r.Ordered && !w.leaving.IsZero() {
			lowest = min(lowest, w.Ordinal)
		}
	}
	return lowest
}

// straighten has those workers drain that have to go first. A worker that its node took
// with it comes back above others that drain.
func (d *decision) straighten(r *revision) {
	if !r.Ordered {
		return
	}
	slices.SortFunc(r.workers, func(a, b *worker) int { return cmp.Compare(b.Ordinal, a.Ordinal) })
	floor := r.floor()
	for i, w := range r.workers {
		if !w.serves() {
			continue
		}
		if w.Ordinal > floor {
			w.draining = d.now
			continue
		}
		lower := slices.IndexFunc(r.workers[i:], func(other *worker) bool { return !other.draining.IsZero() && other.leaving.IsZero() })
		if lower < 0 {
			return
		}
		w.draining = d.now
		r.workers[i+lower].callBack()
	}
}
