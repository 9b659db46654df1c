package workerpool

import (
	"cmp"
	"slices"

	"github.com/yardmaster/yardmaster/internal/decision"
)

// planResizes returns the changes of the revisions' replicas and histories. Revisions that shrink
// come first, so that their capacity is free when others grow.
func planResizes(revisions []*revisionState, rules *drainRules) []RevisionSize {
	var sizes []RevisionSize
	for _, r := range slices.SortedStableFunc(slices.Values(revisions), func(a, b *revisionState) int {
		return cmp.Compare(a.newReplicas-a.Replicas, b.newReplicas-b.Replicas)
	}) {
		if !r.exists || r.newReplicas != r.Replicas || r.newHistory != r.History {
			sizes = append(sizes, r.newSize(rules))
		}
	}
	return sizes
}

func (r *revisionState) newSize(rules *drainRules) RevisionSize {
	size := RevisionSize{Name: r.Name, Replicas: r.newReplicas, History: r.newHistory, Ordered: r.Ordered}
	if !r.exists {
		size.NewWorkload = r.workload
	}
	for _, w := range r.workers {
		if w.RemovableSince.IsZero() || !rules.canRemove(w) {
			continue
		}
		size.Removable = append(size.Removable, w.Name)
		if !w.Running {
			size.Unstarted = append(size.Unstarted, w.Name)
		}
	}
	return size
}

// WouldInterrupt reports whether setting the replicas of a revision with these workers might
// remove a worker other than the removable ones. The caller lists the workers from the API
// server before a revision shrinks, because the cache may be outdated.
func (s *RevisionSize) WouldInterrupt(workers []Worker) bool {
	var live []*workerState
	for i := range workers {
		if !workers[i].Terminating {
			live = append(live, &workerState{Worker: &workers[i]})
		}
	}
	removed := len(live) - int(s.Replicas)
	if removed <= 0 {
		return false
	}
	compare := ordinalOrderOr(s.Ordered, compareRemovalOrder)
	slices.SortStableFunc(live, compare)
	for _, w := range live {
		if compare(live[removed-1], w) < 0 {
			return false // it comes after all workers that will be removed
		}
		removable := slices.Contains(s.Removable, w.Name)
		started := w.Running && slices.Contains(s.Unstarted, w.Name)
		if !removable || started || w.RemovableSince.IsZero() {
			return true
		}
	}
	return false
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
		decision.CompareTrueFirst(!a.Assigned, !b.Assigned),
		decision.CompareTrueFirst(a.Pending, b.Pending),
		decision.CompareTrueFirst(!a.IsReady(), !b.IsReady()),
		decision.CompareTrueFirst(!a.RemovableSince.IsZero(), !b.RemovableSince.IsZero()),
	)
}

// compareDrainCost is the order in which workers are selected for draining: those that a
// ReplicaSet removes first anyway, then idle ones, then the youngest.
func compareDrainCost(a, b *workerState) int {
	return cmp.Or(
		decision.CompareTrueFirst(!a.Assigned, !b.Assigned),
		decision.CompareTrueFirst(a.Pending, b.Pending),
		decision.CompareTrueFirst(!a.Running, !b.Running),
		decision.CompareTrueFirst(!a.IsReady(), !b.IsReady()),
		decision.CompareTrueFirst(a.Stats != nil && a.Stats.InFlight == 0, b.Stats != nil && b.Stats.InFlight == 0),
		b.Created.Compare(a.Created),
		cmp.Compare(a.Name, b.Name),
	)
}
