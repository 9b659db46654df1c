package pool

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// planRevision plans the replicas of a revision, and the drain states of its workers.
func (e *evaluation) planRevision(r *revisionState) {
	e.drainHighestOrdinals(r)
	e.updateIdleTimes(r)
	r.newReplicas = r.Replicas
	removed := e.removableWorkers(r)
	switch surplus := r.servingWorkers() - r.servingTarget; {
	case removed > 0:
		// The revision grows only after they are removed: otherwise it would keep them.
		r.newReplicas = min(r.Replicas, r.liveWorkers()-removed)
	case surplus < 0:
		surplus += r.undrain(-surplus)
		if r.lowestRemovableOrdinal() == math.MaxInt32 {
			r.newReplicas = max(r.Replicas, r.totalWorkers()-surplus)
		}
		e.markRemovable(r)
	case surplus > 0 && r.CreationFailure != "" && r.uncreatedWorkers() > 0:
		r.newReplicas = r.Replicas - min(r.uncreatedWorkers(), surplus)
	default:
		// Workers that are not created yet are not drained. If they turn out to be too many,
		// they are removed after their creation, before they take messages.
		e.startDraining(r, surplus-r.uncreatedWorkers())
		e.markRemovable(r)
	}
	e.planDrainRequests(r)
}

// updateIdleTimes records which draining workers report that they have nothing in flight. A
// worker that reported it and does not answer now keeps its idle time: it takes no messages, and
// a late answer must not restart the wait for its lease.
func (e *evaluation) updateIdleTimes(r *revisionState) {
	for _, w := range r.workers {
		switch {
		case w.targetDraining.IsZero():
			w.targetIdle = time.Time{}
		case w.Stats == nil:
		case !w.Stats.Drained || w.Stats.InFlight > 0:
			w.targetIdle = time.Time{}
		case w.targetIdle.IsZero():
			w.targetIdle = e.now
		}
	}
}

// startDraining selects workers to drain.
func (e *evaluation) startDraining(r *revisionState, count int32) {
	if count <= 0 {
		return
	}
	candidates := slices.DeleteFunc(slices.Clone(r.workers), func(w *workerState) bool { return !w.isServing() })
	slices.SortStableFunc(candidates, ordinalOrderOr(r.Ordered, compareDrainCost))
	for _, w := range candidates[:min(int(count), len(candidates))] {
		w.targetDraining = e.now
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
func (e *evaluation) markRemovable(r *revisionState) {
	for _, w := range r.workers {
		if w.isUndrainable() && e.canRemove(w) {
			w.targetRemovable = e.now
		}
	}
}

// removableWorkers returns how many workers can be removed now: all of them are marked as
// removable, have finished, and are the first that the workload controller would remove.
func (e *evaluation) removableWorkers(r *revisionState) int32 {
	order, compare := slices.Clone(r.workers), ordinalOrderOr(r.Ordered, compareRemovalOrder)
	slices.SortStableFunc(order, compare)
	removable, examined := int32(0), int32(0)
	for i, w := range order {
		if w.RemovableSince.IsZero() || !e.canRemove(w) {
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

// ordinalOrderOr returns the order of a StatefulSet, highest ordinal first, or else the given
// order.
func ordinalOrderOr(ordered bool, compare func(a, b *workerState) int) func(a, b *workerState) int {
	if ordered {
		return func(a, b *workerState) int { return cmp.Compare(b.Ordinal, a.Ordinal) }
	}
	return compare
}

// compareRemovalOrder is the order in which a ReplicaSet removes Pods, as far as it matters
// here: unassigned, pending and unready Pods first, then by deletion cost, which is lowest for
// removable workers.
func compareRemovalOrder(a, b *workerState) int {
	return cmp.Or(
		compareTrueFirst(!a.Assigned, !b.Assigned),
		compareTrueFirst(a.Pending, b.Pending),
		compareTrueFirst(!a.IsReady(), !b.IsReady()),
		compareTrueFirst(!a.RemovableSince.IsZero(), !b.RemovableSince.IsZero()),
	)
}

// compareDrainCost is the order in which workers are selected for draining: those that a
// ReplicaSet removes first anyway, then idle ones, then the youngest.
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

// canRemove reports whether removing a draining worker loses no message.
func (e *evaluation) canRemove(w *workerState) bool {
	stats := e.observation.Stats
	switch {
	case !w.Running && w.Stats == nil, e.isDrainAbandoned():
		return true
	case e.drain.Mode == v1alpha1.DrainSignal:
		return stats != nil // the removal itself asks the worker to drain
	case stats == nil:
		return false
	case e.hasTimedOut(w) && e.drain.OnTimeout == v1alpha1.DrainRequeue:
		return true
	case w.Stats == nil:
		// Without an answer only the broker's count is known. After a lease it has redelivered
		// the messages of a worker that no longer runs.
		return stats.InFlightKnown && e.othersHoldAllInFlight(w) && e.now.Sub(w.targetDraining) >= e.messageLease()
	case !w.Stats.Drained || w.Stats.InFlight > 0:
		return false
	default:
		return e.othersHoldAllInFlight(w) || !w.targetIdle.IsZero() && e.now.Sub(w.targetIdle) >= e.messageLease()
	}
}

// othersHoldAllInFlight reports whether the other workers report, including prefetched messages,
// all messages that the broker counts as in flight. The broker also counts messages that wait
// for a retry and belong to no worker, so the caller accepts a false result only for one lease.
func (e *evaluation) othersHoldAllInFlight(w *workerState) bool {
	if !e.observation.Stats.InFlightKnown {
		return true
	}
	others := int64(0)
	for i := range e.observation.Workers {
		if other := &e.observation.Workers[i]; other.Name != w.Name && other.Stats != nil {
			others += max(other.Stats.InFlight, 0) + max(other.Stats.Prefetched, 0)
		}
	}
	return e.observation.Stats.InFlight <= others
}

func (e *evaluation) messageLease() time.Duration {
	if e.observation.Stats == nil || e.observation.Stats.Lease <= 0 {
		return defaultLease
	}
	return e.observation.Stats.Lease
}

func (e *evaluation) hasTimedOut(w *workerState) bool {
	return !w.targetDraining.IsZero() && e.now.Sub(w.targetDraining) >= e.drain.Timeout.Duration.Duration
}

// isDrainAbandoned reports whether a user abandoned draining of a pool that is being deleted.
func (e *evaluation) isDrainAbandoned() bool {
	return e.isDeleting() && e.observation.Pool.Annotations[AnnotationAbandon] == "true"
}

// planDrainRequests plans the drain states to write, and requests to workers whose behavior
// differs from their state.
func (e *evaluation) planDrainRequests(r *revisionState) {
	for _, w := range r.workers {
		if !w.targetDraining.Equal(w.DrainingSince) || !w.targetIdle.Equal(w.IdleSince) || !w.targetRemovable.Equal(w.RemovableSince) {
			e.decision.DrainStates = append(e.decision.DrainStates, DrainState{w.Name, w.targetDraining, w.targetIdle, w.targetRemovable})
		}
		if !w.Running && w.Stats == nil || e.drain.Mode == v1alpha1.DrainSignal {
			continue
		}
		isDraining := w.Stats != nil && w.Stats.Draining
		if shouldDrain := !w.targetDraining.IsZero(); shouldDrain != isDraining {
			e.decision.DrainRequests = append(e.decision.DrainRequests, DrainRequest{Worker: w.Name, Drain: shouldDrain})
		}
	}
}

// drainHighestOrdinals makes the highest ordinals of a StatefulSet drain, because it removes
// those first. A worker that was recreated after its node failed may have a higher ordinal than
// workers that drain: then it drains instead of one of those.
func (e *evaluation) drainHighestOrdinals(r *revisionState) {
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
			w.targetDraining = e.now
			continue
		}
		lower := slices.IndexFunc(r.workers[i:], (*workerState).isUndrainable)
		if lower < 0 {
			return
		}
		w.targetDraining = e.now
		r.workers[i+lower].undrain()
	}
}
