package sequence

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/testbuilder"
)

// askRerun asks for the second run.
func askRerun(from string) func(*v1alpha1.SequentialJobSpec) {
	return func(spec *v1alpha1.SequentialJobSpec) { spec.Rerun = &v1alpha1.Rerun{ID: "2", From: from} }
}

func TestARerunStartsAFinishedRunAgain(t *testing.T) {
	tests := map[string]struct {
		from      string
		wantMade  []string
		wantSteps []string
	}{
		"from the step that failed": {
			from: "Failed", wantMade: []string{"build", "test", "cleanup", "test"},
			wantSteps: []string{"build: Succeeded", "test: Running", "ship: Pending", "cleanup: Pending"},
		},
		"from the start": {
			from: "Start", wantMade: []string{"build", "test", "cleanup", "build"},
			wantSteps: []string{"build: Running", "test: Pending", "ship: Pending", "cleanup: Pending"},
		},
		"from a step": {
			from: "test", wantMade: []string{"build", "test", "cleanup", "test"},
			wantSteps: []string{"build: Succeeded", "test: Running", "ship: Pending", "cleanup: Pending"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := atTest(t)
			s.fail("test")
			s.succeed("cleanup")
			s.change(askRerun(test.from))
			s.reconcile()
			s.wantMade(test.wantMade...)
			s.wantSteps(test.wantSteps...)
			if s.sj.Status.Run != 2 || s.sj.Status.RerunID != "2" || s.sj.Status.CompletionTime != nil {
				t.Errorf("want run 2 to go on, got %+v", s.sj.Status)
			}
		})
	}
}

func TestARerunRunsToItsEnd(t *testing.T) {
	s := atTest(t)
	s.fail("test")
	s.succeed("cleanup")
	s.change(askRerun("Failed"))
	s.reconcile()
	s.succeed("test")
	s.succeed("ship")
	s.succeed("cleanup")
	s.wantMade("build", "test", "cleanup", "test", "ship", "cleanup")
	s.wantPhase(v1alpha1.PhaseCompleted, v1alpha1.ReasonCompleted)
	if build, test := s.step("build"), s.step("test"); build.Run != 1 || test.Run != 2 || test.Attempt != 1 {
		t.Errorf("want build of run 1 and test of run 2, attempt 1; got %+v, %+v", build, test)
	}
}

func TestARerunIDThatIsThereFromTheBeginningAsksForNothing(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Rerun("1", "Start"))
	s.succeed("build")
	s.after(time.Minute)
	s.wantMade("build")
	if s.sj.Status.Run != 1 {
		t.Errorf("want run 1, got %d", s.sj.Status.Run)
	}
}

func TestOneIDAsksForOneRerun(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build"))
	s.fail("build")
	s.change(askRerun("Failed"))
	s.reconcile()
	s.fail("build")
	s.after(time.Minute)
	s.wantMade("build", "build")
}

func TestARerunAskedForDuringARunBeginsWhenItHasEnded(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").TTL(0))
	s.change(askRerun("Start"))
	if decision := s.after(time.Minute); decision.HasActions() {
		t.Errorf("the run is interrupted: %+v", decision)
	}
	testbuilder.Job(s.job("build")).Complete(s.now)
	decision := s.decide(nil)
	s.record(decision)
	if decision.DeleteExpired || decision.RequeueAfter == 0 {
		t.Errorf("want another pass at once, got %+v", decision)
	}
	s.reconcile()
	s.wantMade("build", "build")
}

func TestAFinishedRunTakesOverAChangedSpecWithItsRerun(t *testing.T) {
	s := atTest(t)
	s.fail("test")
	s.succeed("cleanup")
	s.change(func(spec *v1alpha1.SequentialJobSpec) {
		spec.Containers[1].Image = "fixed"
		askRerun("Failed")(spec)
	})
	s.reconcile()
	if got := s.job("test").Spec.Template.Spec.Containers[0].Image; got != "fixed" {
		t.Errorf("test runs %s", got)
	}
}

func TestAChangeOfAFinishedRunAloneStartsNothing(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build"))
	s.succeed("build")
	s.change(func(spec *v1alpha1.SequentialJobSpec) {
		spec.Containers = append(spec.Containers, testbuilder.Step("more"))
	})
	s.reconcile()
	s.wantMade("build")
	s.wantPhase(v1alpha1.PhaseCompleted, v1alpha1.ReasonCompleted)
}

func TestRerunsThatCannotBe(t *testing.T) {
	tests := map[string]struct {
		edit func(*v1alpha1.SequentialJobSpec)
		want string
	}{
		"from a step that does not exist": {
			edit: askRerun("nope"),
			want: `cannot rerun from step "nope": no step in containers has this name`,
		},
		"from a step after one that failed": {
			edit: askRerun("ship"),
			want: `cannot rerun from step "ship": step "test" before it has not succeeded`,
		},
		"from a step after one that is new": {
			edit: func(spec *v1alpha1.SequentialJobSpec) {
				spec.Containers[0].Name = "compile"
				askRerun("test")(spec)
			},
			want: `cannot rerun from step "test": step "compile" before it has not succeeded`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := atTest(t)
			s.fail("test")
			s.succeed("cleanup")
			s.change(test.edit)
			if err := CheckRerun(&s.sj.Spec, &s.sj.Status); err == nil || err.Error() != test.want {
				t.Errorf("want error %q, got %v", test.want, err)
			}
			s.reconcile()
			s.wantMade("build", "test", "cleanup")
			s.wantCondition(v1alpha1.ConditionSpecAccepted, "False RerunInvalid: "+test.want)
			s.wantPhase(v1alpha1.PhaseFailed, v1alpha1.ReasonStepFailed)
		})
	}
}

func TestARerunFromFailedNeedsAFailure(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build"))
	s.succeed("build")
	s.change(askRerun("Failed"))
	s.reconcile()
	s.wantMade("build")
	s.wantCondition(v1alpha1.ConditionSpecAccepted, "False RerunInvalid: cannot rerun from Failed: no step failed; set from to Start or to a step's name")
	s.wantPhase(v1alpha1.PhaseCompleted, v1alpha1.ReasonCompleted)

	s.change(askRerun("Start"))
	s.reconcile()
	s.wantMade("build", "build")
	if !meta.IsStatusConditionTrue(s.sj.Status.Conditions, v1alpha1.ConditionSpecAccepted) {
		t.Error("the condition is still there")
	}
}

func TestWhereARerunFromFailedBegins(t *testing.T) {
	t.Run("at a failure that was tolerated, if there is no other", func(t *testing.T) {
		s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("lint", testbuilder.ContinueOnFailure()).Step("build"))
		s.fail("lint")
		s.succeed("build")
		s.change(askRerun("Failed"))
		s.reconcile()
		s.wantMade("lint", "build", "lint")
	})
	t.Run("at the failure that stopped the run, not at one tolerated before", func(t *testing.T) {
		s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("lint", testbuilder.ContinueOnFailure()).Step("build"))
		s.fail("lint")
		s.fail("build")
		s.change(askRerun("Failed"))
		s.reconcile()
		s.wantMade("lint", "build", "build")
	})
	t.Run("at finally, if only that failed", func(t *testing.T) {
		s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Finally("notify").Finally("cleanup"))
		s.succeed("build")
		s.succeed("notify")
		s.fail("cleanup")
		s.change(askRerun("Failed"))
		s.reconcile()
		s.wantMade("build", "notify", "cleanup", "notify")
	})
	t.Run("at the first step, if the spec was refused", func(t *testing.T) {
		s := newTestEnv(t, testbuilder.SequentialJob("a", "ns").Step("build", testbuilder.Image("")).Obj())
		s.reconcile()
		s.wantMade()
		s.change(func(spec *v1alpha1.SequentialJobSpec) {
			spec.Containers[0].Image = "fixed"
			askRerun("Failed")(spec)
		})
		s.reconcile()
		s.wantMade("build")
	})
	t.Run("at the step that the deadline left no turn", func(t *testing.T) {
		s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test").Deadline(60))
		s.now = s.now.Add(time.Hour)
		s.succeed("build")
		s.change(askRerun("Failed"))
		s.reconcile()
		s.wantMade("build", "test")
	})
}
