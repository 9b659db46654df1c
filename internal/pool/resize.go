package pool

import (
	"slices"
)

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
