package workerpool

import (
	"slices"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// The application of a sidecar pool ignores SIGTERM. Its Pod is terminating, and has as long as an evicted one.
func TestATerminatingWorkerThatHasFinishedEndsSoon(t *testing.T) {
	for title, row := range map[string]struct {
		change func(*testPool, *Worker)
		want   bool
	}{
		"its sidecar has ended":            {func(_ *testPool, w *Worker) { w.Stats = nil }, true},
		"its sidecar still answers":        {func(*testPool, *Worker) {}, true},
		"of a pool that is deleted":        {func(s *testPool, _ *Worker) { withDeletionTimestamp(s) }, true},
		"without stats of the queues":      {func(s *testPool, _ *Worker) { withoutStats(s) }, true},
		"its time is already short":        {func(_ *testPool, w *Worker) { w.DeletionGrace = EndGrace }, false},
		"it is not terminating":            {func(_ *testPool, w *Worker) { w.Terminating = false }, false},
		"it was evicted":                   {func(_ *testPool, w *Worker) { w.RemovableSince = time.Time{} }, false},
		"it was stopped after its timeout": {func(_ *testPool, w *Worker) { w.IdleSince = time.Time{} }, false},
		"it reports a message":             {func(_ *testPool, w *Worker) { w.Stats.InFlight = 1 }, false},
		"it takes messages again":          {func(_ *testPool, w *Worker) { w.Stats.Drained = false }, false},
		"the user has set its time": {func(s *testPool, _ *Worker) {
			s.Pool.Spec.Drain.TerminationGrace = durationSeconds(600)
		}, false},
		"it has no sidecar": {func(s *testPool, _ *Worker) { s.Revisions[0].SidecarImage = "" }, false},
	} {
		t.Run(title, func(t *testing.T) {
			s := newTestPool(0)
			s.Operator.Image, s.Pool.Spec.Drain = "operator", &v1alpha1.Drain{Mode: v1alpha1.DrainSidecar}
			s.withCurrentRevision(1)
			s.Revisions[0].SidecarImage = "operator"
			w := &s.Workers[0]
			markedRemovable(w)
			w.Terminating, w.DeletionGrace = true, 660*time.Second
			row.change(s, w)
			d := Decide(s.Observation)
			if got := slices.Equal(d.EndWorkers, []string{w.Name}); got != row.want || len(d.EndWorkers) > 0 != row.want {
				t.Errorf("ends %v, want it to end: %t", d.EndWorkers, row.want)
			}
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
			if len(d.DrainStates) != 1 || d.DrainStates[0].RemovableSince.IsZero() || d.DrainStates[0].Unprotect != row.want {
				t.Errorf("%+v", d.DrainStates)
			}
		})
	}
}
