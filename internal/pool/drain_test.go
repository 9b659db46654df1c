package pool

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

func TestWhoIsDrainedFirst(t *testing.T) {
	tests := map[string]struct {
		change func(s *testPool)
		want   string
	}{
		"of idle ones the youngest": {func(*testPool) {}, "worker:1-2"},
		"an idle one before a younger that is busy": {
			func(s *testPool) { s.withInFlight("worker:1-2", 3) }, "worker:1-1",
		},
		"of busy ones the youngest": {
			func(s *testPool) {
				s.withInFlight("worker:1-0", 1).withInFlight("worker:1-1", 9).withInFlight("worker:1-2", 5)
			}, "worker:1-2",
		},
		"one that is not ready before idle ones": {
			func(s *testPool) { s.changeWorker("worker:1-0", func(w *Worker) { w.ReadySince = time.Time{} }) }, "worker:1-0",
		},
		"one that has no node before all": {
			func(s *testPool) {
				s.changeWorker("worker:1-1", func(w *Worker) { w.ReadySince = time.Time{} })
				s.changeWorker("worker:1-0", func(w *Worker) { w.Assigned, w.ReadySince = false, time.Time{} })
			}, "worker:1-0",
		},
		"one that does not answer after those that are idle": {
			func(s *testPool) { s.changeWorker("worker:1-2", func(w *Worker) { w.Stats = nil }) }, "worker:1-1",
		},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			s := newTestPool(3).withCurrentRevision(3).withReplicas(2)
			test.change(s)
			decision := Decide(s.Observation)
			got := workersWhere(&decision, func(d DrainState) bool { return d.DrainingSince.Equal(testTime) })
			if diff := cmp.Diff([]string{test.want}, got); diff != "" {
				t.Errorf("-want, +got:\n%s", diff)
			}
			if s.plannedReplicas(&decision)[s.Revisions[0].Name] != 3 {
				t.Error("it is removed before it is drained")
			}
		})
	}
}

func TestOfAStatefulSetTheLastIsDrained(t *testing.T) {
	s := newTestPool(3)
	s.Pool.Spec.Workload = v1alpha1.WorkloadStatefulSet
	s.withCurrentRevision(3).withReplicas(2).withInFlight("worker:1-2", 3)
	decision := Decide(s.Observation)
	if diff := cmp.Diff([]string{"worker:1-2"}, workersWhere(&decision, func(d DrainState) bool { return !d.DrainingSince.IsZero() })); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

func TestALateAnswerDoesNotBeginALeaseAnew(t *testing.T) {
	const name = "worker:1-1"
	s := newTestPool(2).withCurrentRevision(2).withReplicas(1).changeWorker(name, drainedSince(10*time.Second))
	s.Stats.InFlight = 1 // as of a message that waits for another try
	s.changeWorker(name, func(w *Worker) { w.Stats, w.IdleSince = nil, testTime.Add(-10*time.Second) })
	for _, mark := range Decide(s.Observation).DrainStates {
		if mark.Worker == name && mark.IdleSince.IsZero() {
			t.Error("it is forgotten since when it has been idle")
		}
	}
	s.changeWorker(name, func(w *Worker) { w.Stats = &WorkerStats{Draining: true, InFlight: 1} })
	if marks := Decide(s.Observation).DrainStates; !slices.ContainsFunc(marks, func(d DrainState) bool { return d.Worker == name && d.IdleSince.IsZero() }) {
		t.Error("one that has a message after all is taken for idle")
	}
}

func TestWhenADrainingWorkerMayLeave(t *testing.T) {
	const name = "worker:1-1"
	tests := map[string]struct {
		change func(s *testPool)
		want   bool
	}{
		"it has finished, and the broker knows of nothing": {func(*testPool) {}, true},
		"it still has a message": {
			func(s *testPool) {
				s.withInFlight(name, 1).changeWorker(name, func(w *Worker) { w.Stats.Drained = false })
			}, false,
		},
		"what the broker knows of, another has": {func(s *testPool) { s.withInFlight("worker:1-0", 2) }, true},
		"what the broker knows of, another has fetched in advance": {
			func(s *testPool) {
				s.Stats.InFlight = 2
				s.changeWorker("worker:1-0", func(w *Worker) { w.Stats.InFlight, w.Stats.Prefetched = 1, 1 })
			}, true,
		},
		"the broker knows of more than the others have": {
			func(s *testPool) { s.Stats.InFlight = 1 }, false,
		},
		"nor has it been its own for a lease": {
			func(s *testPool) { s.Stats.InFlight = 1; s.changeWorker(name, drainedSince(30*time.Second)) }, true,
		},
		"the broker does not answer": {func(s *testPool) { s.Stats = nil }, false},
		"the broker does not answer, and its time is over": {
			func(s *testPool) {
				s.Stats = nil
				s.Pool.Spec.Drain = &v1alpha1.Drain{OnTimeout: v1alpha1.DrainRequeue}
				s.changeWorker(name, drainedSince(time.Hour))
			}, false,
		},
		"it does not answer, and was just asked": {
			func(s *testPool) { s.changeWorker(name, func(w *Worker) { w.Stats = nil }) }, false,
		},
		"it does not answer, and the broker knows of nothing for a lease": {
			func(s *testPool) {
				s.changeWorker(name, drainedSince(31*time.Second))
				s.changeWorker(name, func(w *Worker) { w.Stats = nil })
			}, true,
		},
		"it is not over by the timeout, and is waited for": {
			func(s *testPool) {
				s.changeWorker(name, drainedSince(time.Hour)).withInFlight(name, 1).changeWorker(name, func(w *Worker) { w.Stats.Drained = false })
			}, false,
		},
		"it is not over by the timeout, and its messages go back": {
			func(s *testPool) {
				s.Pool.Spec.Drain = &v1alpha1.Drain{OnTimeout: v1alpha1.DrainRequeue}
				s.changeWorker(name, drainedSince(time.Hour)).withInFlight(name, 1).changeWorker(name, func(w *Worker) { w.Stats.Drained = false })
			}, true,
		},
		"nobody knows what waits elsewhere, so that its word is all there is": {
			func(s *testPool) { s.Stats.InFlightKnown, s.Stats.InFlight = false, 7 }, true,
		},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			s := newTestPool(2).withCurrentRevision(2).withReplicas(1).changeWorker(name, drainedSince(10*time.Second))
			test.change(s)
			decision := Decide(s.Observation)
			leaves := len(workersWhere(&decision, func(d DrainState) bool { return d.Worker == name && !d.RemovableSince.IsZero() })) > 0
			if leaves != test.want {
				t.Errorf("it leaves: %t, want %t", leaves, test.want)
			}
		})
	}
}

func TestAWorkerIsRemovedOnlyWhenItsMarkIsSeen(t *testing.T) {
	const name = "worker:1-1"
	tests := map[string]struct {
		change func(s *testPool)
		want   int32
	}{
		"it has just finished": {func(s *testPool) { s.changeWorker(name, drainedSince(time.Minute)) }, 2},
		"it leaves":            {func(s *testPool) { s.changeWorker(name, markedRemovable) }, 1},
		"it leaves, and is wanted again: it goes": {func(s *testPool) { s.changeWorker(name, markedRemovable).withReplicas(2) }, 1},
		"it leaves, but has begun anew": {func(s *testPool) {
			s.changeWorker(name, markedRemovable).withInFlight(name, 1).changeWorker(name, func(w *Worker) { w.Stats.Drained = false })
		}, 2},
		"it leaves, but another would go before it": {func(s *testPool) {
			s.changeWorker(name, markedRemovable).changeWorker("worker:1-0", func(w *Worker) { w.ReadySince = time.Time{} })
		}, 2},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			s := newTestPool(2).withCurrentRevision(2).withReplicas(1)
			test.change(s)
			decision := Decide(s.Observation)
			if got := s.plannedReplicas(&decision)[s.Revisions[0].Name]; got != test.want {
				t.Errorf("%d replicas, want %d", got, test.want)
			}
		})
	}
}

func TestADrainingWorkerIsCalledBackWhenItIsWantedAgain(t *testing.T) {
	s := newTestPool(3).withCurrentRevision(3).changeWorker("worker:1-2", drainedSince(time.Minute)).changeWorker("worker:1-1", drainedSince(time.Second))
	s.withReplicas(2)
	decision := Decide(s.Observation)
	if diff := cmp.Diff([]DrainRequest{{Worker: "worker:1-1"}}, decision.DrainRequests); diff != "" {
		t.Errorf("the last that was asked goes on (-want, +got):\n%s", diff)
	}
	if got := s.plannedReplicas(&decision)[s.Revisions[0].Name]; got != 3 {
		t.Errorf("%d replicas, want 3", got)
	}
}

func TestWhoeverDoesNotWhatIsMarkedIsAskedAgain(t *testing.T) {
	s := newTestPool(2).withCurrentRevision(2).withReplicas(1).changeWorker("worker:1-1", func(w *Worker) { w.DrainingSince = testTime.Add(-time.Minute) })
	s.changeWorker("worker:1-0", func(w *Worker) { w.Stats.Draining = true })
	decision := Decide(s.Observation)
	want := []DrainRequest{{Worker: "worker:1-0"}, {Worker: "worker:1-1", Drain: true}}
	if diff := cmp.Diff(want, decision.DrainRequests); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

func TestTheLiveLookBeforeARevisionShrinks(t *testing.T) {
	alive := func(name string, change ...func(w *Worker)) Worker {
		w := Worker{Name: name, Assigned: true, Running: true, ReadySince: testTime}
		for _, c := range change {
			c(&w)
		}
		return w
	}
	marked := func(w *Worker) { w.RemovableSince = testTime }
	tests := map[string]struct {
		workers []Worker
		size    RevisionSize
		want    bool
	}{
		"all is as it was seen":                {[]Worker{alive("a"), alive("b", marked)}, RevisionSize{Replicas: 1, Removable: []string{"b"}}, false},
		"it is gone already":                   {[]Worker{alive("a")}, RevisionSize{Replicas: 1, Removable: []string{"b"}}, false},
		"another has come in between":          {[]Worker{alive("a"), alive("c")}, RevisionSize{Replicas: 1, Removable: []string{"b"}}, true},
		"another is not ready any more":        {[]Worker{alive("a", func(w *Worker) { w.ReadySince = time.Time{} }), alive("b", marked)}, RevisionSize{Replicas: 1, Removable: []string{"b"}}, true},
		"another leaves, too, and is not done": {[]Worker{alive("a", marked), alive("b", marked)}, RevisionSize{Replicas: 1, Removable: []string{"b"}}, true},
		"it did not run, and does now":         {[]Worker{alive("a"), alive("b", marked)}, RevisionSize{Replicas: 1, Removable: []string{"b"}, Unstarted: []string{"b"}}, true},
		"it terminates":                        {[]Worker{alive("a"), alive("b", func(w *Worker) { w.Terminating = true })}, RevisionSize{Replicas: 1}, false},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			if got := test.size.WouldInterrupt(test.workers); got != test.want {
				t.Errorf("it strikes: %t, want %t", got, test.want)
			}
		})
	}
}
