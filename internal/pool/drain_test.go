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
		change func(s *scene)
		want   string
	}{
		"of idle ones the youngest": {func(*scene) {}, "worker:1-2"},
		"an idle one before a younger that is busy": {
			func(s *scene) { s.busy("worker:1-2", 3) }, "worker:1-1",
		},
		"of busy ones the youngest": {
			func(s *scene) { s.busy("worker:1-0", 1).busy("worker:1-1", 9).busy("worker:1-2", 5) }, "worker:1-2",
		},
		"one that is not ready before idle ones": {
			func(s *scene) { s.worker("worker:1-0", func(w *Worker) { w.ReadySince = time.Time{} }) }, "worker:1-0",
		},
		"one that has no node before all": {
			func(s *scene) {
				s.worker("worker:1-1", func(w *Worker) { w.ReadySince = time.Time{} })
				s.worker("worker:1-0", func(w *Worker) { w.Assigned, w.ReadySince = false, time.Time{} })
			}, "worker:1-0",
		},
		"one that does not answer after those that are idle": {
			func(s *scene) { s.worker("worker:1-2", func(w *Worker) { w.Stats = nil }) }, "worker:1-1",
		},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			s := scenery(3).serving(3).wants(2)
			test.change(s)
			plan := Decide(s.Input)
			got := marked(&plan, func(m Mark) bool { return m.Draining.Equal(noon) })
			if diff := cmp.Diff([]string{test.want}, got); diff != "" {
				t.Errorf("-want, +got:\n%s", diff)
			}
			if s.sizes(&plan)[s.Revisions[0].Name] != 3 {
				t.Error("it is removed before it is drained")
			}
		})
	}
}

func TestOfAStatefulSetTheLastIsDrained(t *testing.T) {
	s := scenery(3)
	s.Pool.Spec.Workload = v1alpha1.WorkloadStatefulSet
	s.serving(3).wants(2).busy("worker:1-2", 3)
	plan := Decide(s.Input)
	if diff := cmp.Diff([]string{"worker:1-2"}, marked(&plan, func(m Mark) bool { return !m.Draining.IsZero() })); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

func TestALateAnswerDoesNotBeginALeaseAnew(t *testing.T) {
	const name = "worker:1-1"
	s := scenery(2).serving(2).wants(1).worker(name, drained(10*time.Second))
	s.Figures.InFlight = 1 // as of a message that waits for another try
	s.worker(name, func(w *Worker) { w.Stats, w.Idle = nil, noon.Add(-10*time.Second) })
	for _, mark := range Decide(s.Input).Marks {
		if mark.Worker == name && mark.Idle.IsZero() {
			t.Error("it is forgotten since when it has been idle")
		}
	}
	s.worker(name, func(w *Worker) { w.Stats = &Stats{Draining: true, InFlight: 1} })
	if marks := Decide(s.Input).Marks; !slices.ContainsFunc(marks, func(m Mark) bool { return m.Worker == name && m.Idle.IsZero() }) {
		t.Error("one that has a message after all is taken for idle")
	}
}

func TestWhenADrainingWorkerMayLeave(t *testing.T) {
	const name = "worker:1-1"
	tests := map[string]struct {
		change func(s *scene)
		want   bool
	}{
		"it has finished, and the broker knows of nothing": {func(*scene) {}, true},
		"it still has a message": {
			func(s *scene) { s.busy(name, 1).worker(name, func(w *Worker) { w.Stats.Drained = false }) }, false,
		},
		"what the broker knows of, another has": {func(s *scene) { s.busy("worker:1-0", 2) }, true},
		"what the broker knows of, another has fetched in advance": {
			func(s *scene) {
				s.Figures.InFlight = 2
				s.worker("worker:1-0", func(w *Worker) { w.Stats.InFlight, w.Stats.Held = 1, 1 })
			}, true,
		},
		"the broker knows of more than the others have": {
			func(s *scene) { s.Figures.InFlight = 1 }, false,
		},
		"nor has it been its own for a lease": {
			func(s *scene) { s.Figures.InFlight = 1; s.worker(name, drained(30*time.Second)) }, true,
		},
		"the broker does not answer": {func(s *scene) { s.Figures = nil }, false},
		"the broker does not answer, and its time is over": {
			func(s *scene) {
				s.Figures = nil
				s.Pool.Spec.Drain = &v1alpha1.Drain{OnTimeout: v1alpha1.DrainRequeue}
				s.worker(name, drained(time.Hour))
			}, false,
		},
		"it does not answer, and was just asked": {
			func(s *scene) { s.worker(name, func(w *Worker) { w.Stats = nil }) }, false,
		},
		"it does not answer, and the broker knows of nothing for a lease": {
			func(s *scene) {
				s.worker(name, drained(31*time.Second))
				s.worker(name, func(w *Worker) { w.Stats = nil })
			}, true,
		},
		"it is not over by the timeout, and is waited for": {
			func(s *scene) {
				s.worker(name, drained(time.Hour)).busy(name, 1).worker(name, func(w *Worker) { w.Stats.Drained = false })
			}, false,
		},
		"it is not over by the timeout, and its messages go back": {
			func(s *scene) {
				s.Pool.Spec.Drain = &v1alpha1.Drain{OnTimeout: v1alpha1.DrainRequeue}
				s.worker(name, drained(time.Hour)).busy(name, 1).worker(name, func(w *Worker) { w.Stats.Drained = false })
			}, true,
		},
		"nobody knows what waits elsewhere, so that its word is all there is": {
			func(s *scene) { s.Figures.InFlightKnown, s.Figures.InFlight = false, 7 }, true,
		},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			s := scenery(2).serving(2).wants(1).worker(name, drained(10*time.Second))
			test.change(s)
			plan := Decide(s.Input)
			leaves := len(marked(&plan, func(m Mark) bool { return m.Worker == name && !m.Leaving.IsZero() })) > 0
			if leaves != test.want {
				t.Errorf("it leaves: %t, want %t", leaves, test.want)
			}
		})
	}
}

func TestAWorkerIsRemovedOnlyWhenItsMarkIsSeen(t *testing.T) {
	const name = "worker:1-1"
	tests := map[string]struct {
		change func(s *scene)
		want   int32
	}{
		"it has just finished": {func(s *scene) { s.worker(name, drained(time.Minute)) }, 2},
		"it leaves":            {func(s *scene) { s.worker(name, leaving) }, 1},
		"it leaves, and is wanted again: it goes": {func(s *scene) { s.worker(name, leaving).wants(2) }, 1},
		"it leaves, but has begun anew": {func(s *scene) {
			s.worker(name, leaving).busy(name, 1).worker(name, func(w *Worker) { w.Stats.Drained = false })
		}, 2},
		"it leaves, but another would go before it": {func(s *scene) {
			s.worker(name, leaving).worker("worker:1-0", func(w *Worker) { w.ReadySince = time.Time{} })
		}, 2},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			s := scenery(2).serving(2).wants(1)
			test.change(s)
			plan := Decide(s.Input)
			if got := s.sizes(&plan)[s.Revisions[0].Name]; got != test.want {
				t.Errorf("%d replicas, want %d", got, test.want)
			}
		})
	}
}

func TestADrainingWorkerIsCalledBackWhenItIsWantedAgain(t *testing.T) {
	s := scenery(3).serving(3).worker("worker:1-2", drained(time.Minute)).worker("worker:1-1", drained(time.Second))
	s.wants(2)
	plan := Decide(s.Input)
	if diff := cmp.Diff([]Request{{Worker: "worker:1-1"}}, plan.Ask); diff != "" {
		t.Errorf("the last that was asked goes on (-want, +got):\n%s", diff)
	}
	if got := s.sizes(&plan)[s.Revisions[0].Name]; got != 3 {
		t.Errorf("%d replicas, want 3", got)
	}
}

func TestWhoeverDoesNotWhatIsMarkedIsAskedAgain(t *testing.T) {
	s := scenery(2).serving(2).wants(1).worker("worker:1-1", func(w *Worker) { w.Draining = noon.Add(-time.Minute) })
	s.worker("worker:1-0", func(w *Worker) { w.Stats.Draining = true })
	plan := Decide(s.Input)
	want := []Request{{Worker: "worker:1-0"}, {Worker: "worker:1-1", Drain: true}}
	if diff := cmp.Diff(want, plan.Ask); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

func TestTheLiveLookBeforeARevisionShrinks(t *testing.T) {
	alive := func(name string, change ...func(w *Worker)) Worker {
		w := Worker{Name: name, Assigned: true, Running: true, ReadySince: noon}
		for _, c := range change {
			c(&w)
		}
		return w
	}
	marked := func(w *Worker) { w.Leaving = noon }
	tests := map[string]struct {
		workers []Worker
		size    Size
		want    bool
	}{
		"all is as it was seen":                {[]Worker{alive("a"), alive("b", marked)}, Size{Replicas: 1, Finished: []string{"b"}}, false},
		"it is gone already":                   {[]Worker{alive("a")}, Size{Replicas: 1, Finished: []string{"b"}}, false},
		"another has come in between":          {[]Worker{alive("a"), alive("c")}, Size{Replicas: 1, Finished: []string{"b"}}, true},
		"another is not ready any more":        {[]Worker{alive("a", func(w *Worker) { w.ReadySince = time.Time{} }), alive("b", marked)}, Size{Replicas: 1, Finished: []string{"b"}}, true},
		"another leaves, too, and is not done": {[]Worker{alive("a", marked), alive("b", marked)}, Size{Replicas: 1, Finished: []string{"b"}}, true},
		"it did not run, and does now":         {[]Worker{alive("a"), alive("b", marked)}, Size{Replicas: 1, Finished: []string{"b"}, Unstarted: []string{"b"}}, true},
		"it terminates":                        {[]Worker{alive("a"), alive("b", func(w *Worker) { w.Terminating = true })}, Size{Replicas: 1}, false},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			if got := test.size.Strikes(test.workers); got != test.want {
				t.Errorf("it strikes: %t, want %t", got, test.want)
			}
		})
	}
}
