package pool

import (
	"slices"
)

// WouldInterrupt tells whether a revision of these workers, made this size, might lose another
// than the plan means. It is asked with a live list before a revision shrinks: a cache may
// still show workers as they were.
func (s *RevisionSize) WouldInterrupt(workers []Worker) bool {
	var live []*workerState
	for i := range workers {
		if !workers[i].Terminating {
			live = append(live, &workerState{Worker: &workers[i]})
		}
	}
	gone := len(live) - int(s.Replicas)
	if gone <= 0 {
		return false
	}
	order := ordinalOrderOr(s.Ordered, compareRemovalOrder)
	slices.SortStableFunc(live, order)
	for _, w := range live {
		if order(live[gone-1], w) < 0 {
			return false // it comes after all that go
		}
		meant := slices.Contains(s.Removable, w.Name)
		begun := w.Running && slices.Contains(s.Unstarted, w.Name)
		if !meant || begun || w.RemovableSince.IsZero() {
			return true
		}
	}
	return false
}
