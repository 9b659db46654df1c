package workerpool

import (
	"slices"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
)

// A worker of a sidecar pool has finished. Its grace period is that of an evicted one.
func TestAWorkerThatHasFinishedEndsSoon(t *testing.T) {
	for title, row := range map[string]struct {
		change func(*testPool, *Worker)
		want   bool
	}{
		"its sidecar does not answer":      {func(_ *testPool, w *Worker) { w.Stats, w.Running = nil, false }, true},
		"its sidecar answers":              {func(*testPool, *Worker) {}, true},
		"of a pool that is deleted":        {func(s *testPool, _ *Worker) { withDeletionTimestamp(s) }, true},
		"of a StatefulSet":                 {func(s *testPool, _ *Worker) { s.Revisions[0].Ordered = true }, true},
		"it is terminating":                {func(_ *testPool, w *Worker) { w.Terminating = true }, false},
		"it drains":                        {func(_ *testPool, w *Worker) { w.RemovableSince = time.Time{} }, false},
		"it was stopped after its timeout": {func(_ *testPool, w *Worker) { w.IdleSince = time.Time{} }, false},
		"it reports a message":             {func(_ *testPool, w *Worker) { w.Stats.InFlight = 1 }, false},
		"it takes messages again":          {func(_ *testPool, w *Worker) { w.Stats.Drained = false }, false},
		"the stats are unknown":            {func(s *testPool, _ *Worker) { withoutStats(s) }, false},
		"the user has set its time":        {func(s *testPool, _ *Worker) { s.Pool.Spec.Drain.TerminationGrace = durationSeconds(600) }, false},
		"it has no sidecar":                {func(s *testPool, _ *Worker) { s.Revisions[0].SidecarImage = "" }, false},
	} {
		t.Run(title, func(t *testing.T) {
			s := newTestPool(1)
			s.Operator.Image, s.Pool.Spec.Drain = "operator", &v1alpha1.Drain{Mode: v1alpha1.DrainSidecar}
			s.withCurrentRevision(2)
			s.Revisions[0].SidecarImage = "operator"
			w := &s.Workers[1]
			w.Ordinal = 0
			markedRemovable(w)
			row.change(s, w)
			if s.Revisions[0].Ordered {
				w.Ordinal = 1
			}
			d := Decide(s.Observation)
			var finished []string
			for _, size := range d.Resizes {
				finished = append(finished, size.Finished...)
			}
			isIt := slices.Equal(finished, []string{w.Name})
			require.True(t, isIt == row.want && len(finished) > 0 == row.want, "ends %v, want it to end: %t; %+v", finished, row.want, d.Resizes)
		})
	}
}

func TestAWorkerThatHasFinishedLosesItsProtectionWithItsMark(t *testing.T) {
	for title, row := range map[string]struct {
		protection Protection
		want       bool
	}{
		"protected":           {Protection{Active: true, Written: testTime.Add(-time.Second)}, true},
		"not protected":       {Protection{}, false},
		"protected by a user": {Protection{Active: true, Foreign: true}, false},
	} {
		t.Run(title, func(t *testing.T) {
			s := newTestPool(0).withCurrentRevision(1)
			drainedSince(time.Minute)(&s.Workers[0])
			s.Workers[0].Protection = row.protection
			d := Decide(s.Observation)
			isMarked := len(d.DrainStates) == 1 && !d.DrainStates[0].RemovableSince.IsZero()
			require.True(t, isMarked && d.DrainStates[0].Unprotect == row.want, "%+v", d.DrainStates)
		})
	}
}
