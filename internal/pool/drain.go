package pool

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// planRevision brings a revision nearer to the workers it is wanted to have, and has those
// it is not drained before they go.
func (d *evaluation) planRevision(r *revisionState) {
	d.drainHighestOrdinals(r)
	d.updateIdleTimes(r)
	r.newReplicas = r.Replicas
	gone := d.removableWorkers(r)
	switch surplus := r.servingWorkers() - r.servingTarget; {
	case gone > 0:
		// Growth waits until they are gone: it would keep them.
		r.newReplicas = min(r.Replicas, r.liveWorkers()-gone)
	case surplus < 0:
		surplus += r.undrain(-surplus)
		if r.lowestRemovableOrdinal() == math.MaxInt32 {
			r.newReplicas = max(r.Replicas, r.totalWorkers()-surplus)
		}
		d.markRemovable(r)
	case surplus > 0 && r.CreationFailure != "" && r.uncreatedWorkers() > 0:
		r.newReplicas = r.Replicas - min(r.uncreatedWorkers(), surplus)
	default:
		// Those still to come count for nothing: if they are too many, they go once they are
		// there, before they have begun anything.
		d.startDraining(r, surplus-r.uncreatedWorkers())
		d.markRemovable(r)
	}
	d.planDrainRequests(r)
}

// updateIdleTimes notes which of the draining workers say that they have nothing in flight. One
// that has said so and does not answer now takes no more messages either: it is not to
// begin a lease anew for each answer that is late.
func (d *evaluation) updateIdleTimes(r *revisionState) {
	for _, w := range r.workers {
		switch {
		case w.targetDraining.IsZero():
			w.targetIdle = time.Time{}
		case w.Stats == nil:
		case !w.Stats.Drained || w.Stats.InFlight > 0:
			w.targetIdle = time.Time{}
		case w.targetIdle.IsZero():
			w.targetIdle = d.now
		}
	}
}

// startDraining has so many workers drain.
func (d *evaluation) startDraining(r *revisionState, number int32) {
	if number <= 0 {
		return
	}
	victims := slices.DeleteFunc(slices.Clone(r.workers), func(w *workerState) bool { return !w.isServing() })
	slices.SortStableFunc(victims, ordinalOrderOr(r.Ordered, compareDrainCost))
	for _, w := range victims[:min(int(number), len(victims))] {
		w.targetDraining = d.now
	}
}

// undrain has up to so many draining workers go on, the last asked first. It returns how
// many do.
func (r *revisionState) undrain(number int32) int32 {
	floor := r.lowestRemovableOrdinal()
	back := slices.DeleteFunc(slices.Clone(r.workers), func(w *workerState) bool {
		return w.targetDraining.IsZero() || !w.targetRemovable.IsZero() || w.Ordinal > floor
	})
	slices.SortStableFunc(back, func(a, b *workerState) int {
		if r.Ordered {
			return cmp.Compare(a.Ordinal, b.Ordinal)
		}
		return cmp.Or(b.targetDraining.Compare(a.targetDraining), a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
	})
	called := int32(0)
	for _, w := range back[:min(int(number), len(back))] {
		w.undrain()
		called++
	}
	return called
}

func (w *workerState) undrain() { w.targetDraining, w.targetIdle = time.Time{}, time.Time{} }

// markRemovable has those leave that have finished. Removing them is for a later pass, which has
// seen that this is on their Pods: who removes Pods goes by that.
func (d *evaluation) markRemovable(r *revisionState) {
	for _, w := range r.workers {
		if !w.targetDraining.IsZero() && w.targetRemovable.IsZero() && d.canRemove(w) {
			w.targetRemovable = d.now
		}
	}
}

// removableWorkers is how many workers can be removed now: all of them leave, have nothing in
// flight, and are the first that the workload's controller would take.
func (d *evaluation) removableWorkers(r *revisionState) int32 {
	order, precedes := slices.Clone(r.workers), ordinalOrderOr(r.Ordered, compareRemovalOrder)
	slices.SortStableFunc(order, precedes)
	number, seen := int32(0), int32(0)
	for i, w := range order {
		if w.RemovableSince.IsZero() || !d.canRemove(w) {
			break
		}
		seen++
		// Of two that are equal in all that is known, either may be taken.
		if i+1 == len(order) || precedes(w, order[i+1]) < 0 {
			number = seen
		}
	}
	return number
}

// ordinalOrderOr is an order of workers, or else that of their numbers, the highest first.
func ordinalOrderOr(ordered bool, order func(a, b *workerState) int) func(a, b *workerState) int {
	if ordered {
		return func(a, b *workerState) int { return cmp.Compare(b.Ordinal, a.Ordinal) }
	}
	return order
}

// compareRemovalOrder is the order in which a ReplicaSet removes Pods, as far as it matters here: those
// without a node, then pending, then unready ones; then by the deletion cost, which is
// lowest where a worker leaves.
func compareRemovalOrder(a, b *workerState) int {
	return cmp.Or(
		compareTrueFirst(!a.Assigned, !b.Assigned),
		compareTrueFirst(a.Pending, b.Pending),
		compareTrueFirst(!a.IsReady(), !b.IsReady()),
		compareTrueFirst(!a.RemovableSince.IsZero(), !b.RemovableSince.IsZero()),
	)
}

// compareDrainCost is the order in which workers are chosen: those that a ReplicaSet would take
// first anyway, then idle ones, then the youngest.
func compareDrainCost(a, b *workerState) int {
	return cmp.Or(
		compareTrueFirst(!a.Assigned, !b.Assigned),
		compareTrueFirst(a.Pending, b.Pending),
		compareTrueFirst(!a.Running, !b.Running),
		compareTrueFirst(!a.IsReady(), !b.IsReady()),
		compareTrueFirst(a.Stats != nil && a.Stats.InFlight == 0, b.Stats != nil && b.Stats.InFlight == 0),
		b.Created.Compare(a.Created),
		cmp.Compare(a.Name, b.Name),
	)
}

// compareTrueFirst puts what is before what is not.
func compareTrueFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	default:
		return 1
	}
}

// canRemove tells whether nothing is lost when a draining worker goes.
func (d *evaluation) canRemove(w *workerState) bool {
	f := d.observation.Stats
	switch {
	case !w.Running && w.Stats == nil, d.isDrainAbandoned():
		return true
	case d.drain.Mode == v1alpha1.DrainSignal:
		return f != nil // going is how it is asked
	case f == nil:
		return false
	case d.hasTimedOut(w) && d.drain.OnTimeout == v1alpha1.DrainRequeue:
		return true
	case w.Stats == nil:
		// It does not say. The broker does, once it would have given to others what a
		// worker that is not there had.
		return f.InFlightKnown && d.isInFlightExplained(w) && d.now.Sub(w.targetDraining) >= d.messageLease()
	case !w.Stats.Drained || w.Stats.InFlight > 0:
		return false
	default:
		return d.isInFlightExplained(w) || !w.targetIdle.IsZero() && d.now.Sub(w.targetIdle) >= d.messageLease()
	}
}

// isInFlightExplained tells whether the broker knows of no more in flight than the other workers
// say they have, those included that they have fetched in advance. It counts messages that wait for another try, too, so that what is not
// explained may be nobody's: a lease later, at the latest, it is not this worker's.
func (d *evaluation) isInFlightExplained(w *workerState) bool {
	if !d.observation.Stats.InFlightKnown {
		return true
	}
	others := int64(0)
	for i := range d.observation.Workers {
		if other := &d.observation.Workers[i]; other.Name != w.Name && other.Stats != nil {
			others += max(other.Stats.InFlight, 0) + max(other.Stats.Prefetched, 0)
		}
	}
	return d.observation.Stats.InFlight <= others
}

func (d *evaluation) messageLease() time.Duration {
	if d.observation.Stats == nil || d.observation.Stats.Lease <= 0 {
		return defaultLease
	}
	return d.observation.Stats.Lease
}

func (d *evaluation) hasTimedOut(w *workerState) bool {
	return !w.targetDraining.IsZero() && d.now.Sub(w.targetDraining) >= d.drain.Timeout.Duration.Duration
}

// planDrainRequests plans to mark what has changed, and to ask whoever does not do what is marked.
func (d *evaluation) planDrainRequests(r *revisionState) {
	for _, w := range r.workers {
		if !w.targetDraining.Equal(w.DrainingSince) || !w.targetIdle.Equal(w.IdleSince) || !w.targetRemovable.Equal(w.RemovableSince) {
			d.decision.DrainStates = append(d.decision.DrainStates, DrainState{w.Name, w.targetDraining, w.targetIdle, w.targetRemovable})
		}
		if !w.Running && w.Stats == nil || d.drain.Mode == v1alpha1.DrainSignal {
			continue
		}
		drains := w.Stats != nil && w.Stats.Draining
		switch {
		case !w.targetDraining.IsZero() && !drains:
			d.decision.DrainRequests = append(d.decision.DrainRequests, DrainRequest{Worker: w.Name, Drain: true})
		case w.targetDraining.IsZero() && drains:
			d.decision.DrainRequests = append(d.decision.DrainRequests, DrainRequest{Worker: w.Name})
		}
	}
}
