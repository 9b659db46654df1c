package sequentialjob

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func TestStepsAreCountedByState(t *testing.T) {
	run := func() *testEnv {
		return startRun(t, testbuilder.SequentialJob("a", "ns").Step("lint", testbuilder.ContinueOnFailure()).Step("build").Finally("cleanup"))
	}
	tests := map[string]struct {
		happens      func(*testEnv)
		wantState    v1alpha1.StepCounts
		wantProgress v1alpha1.Progress
		want         string // of containers and of finally
	}{
		"at the start": {
			happens:      func(*testEnv) {},
			wantState:    v1alpha1.StepCounts{Active: 1},
			wantProgress: v1alpha1.Progress{CurrentIndex: new(int32(0)), CurrentStep: "lint"},
			want:         "0/2 0/1",
		},
		"after a successful step": {
			happens:      func(s *testEnv) { s.succeedStep("lint") },
			wantState:    v1alpha1.StepCounts{Active: 1, Succeeded: 1},
			wantProgress: v1alpha1.Progress{CurrentIndex: new(int32(1)), CurrentStep: "build", CompletedIndices: []int32{0}},
			want:         "1/2 0/1",
		},
		"after a tolerated failure": {
			happens:      func(s *testEnv) { s.failStep("lint") },
			wantState:    v1alpha1.StepCounts{Active: 1, Failed: 1},
			wantProgress: v1alpha1.Progress{CurrentIndex: new(int32(1)), CurrentStep: "build"},
			want:         "0/2 0/1",
		},
		"after a failure that fails the run": {
			happens:   func(s *testEnv) { s.succeedStep("lint"); s.failStep("build") },
			wantState: v1alpha1.StepCounts{Active: 1, Succeeded: 1, Failed: 1},
			wantProgress: v1alpha1.Progress{
				CurrentIndex: new(int32(2)), CurrentStep: "cleanup", CompletedIndices: []int32{0},
				FailedIndex: new(int32(1)), FailureReason: "BackoffLimitExceeded",
			},
			want: "1/2 0/1",
		},
		"at the end": {
			happens:      func(s *testEnv) { s.succeedStep("lint"); s.succeedStep("build"); s.succeedStep("cleanup") },
			wantState:    v1alpha1.StepCounts{Succeeded: 3},
			wantProgress: v1alpha1.Progress{CompletedIndices: []int32{0, 1, 2}},
			want:         "2/2 1/1",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := run()
			test.happens(s)
			if diff := cmp.Diff(test.wantState, s.sj.Status.State); diff != "" {
				t.Errorf("state (-want, +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.wantProgress, s.sj.Status.Progress); diff != "" {
				t.Errorf("progress (-want, +got):\n%s", diff)
			}
			if got := FormatProgress(s.sj, false) + " " + FormatProgress(s.sj, true); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

func TestAtMostOneOfAvailableProgressingFailedIsTrue(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build"))
	s.wantPhase(v1alpha1.PhasePending, v1alpha1.ReasonWaiting)
	s.wantCondition(v1alpha1.ConditionProgressing, `False Waiting: waiting for step "build" to start`)
	s.runPod("build")
	s.wantPhase(v1alpha1.PhaseRunning, v1alpha1.ReasonRunning)
	s.wantCondition(v1alpha1.ConditionProgressing, `True Running: running step "build"`)
	s.wantCondition(v1alpha1.ConditionAvailable, `False Running: running step "build"`)
	s.wantCondition(v1alpha1.ConditionFailed, "False NotFailed: ")

	s.succeedStep("build")
	s.wantCondition(v1alpha1.ConditionProgressing, "False Completed: 1/1 steps succeeded")
	s.wantCondition(v1alpha1.ConditionAvailable, "True Completed: 1/1 steps succeeded")
	s.wantCondition(v1alpha1.ConditionFailed, "False NotFailed: ")
}

func TestEveryConditionHasTheObservedGeneration(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test"))
	s.changeSpec(func(spec *v1alpha1.SequentialJobSpec) { spec.Containers[1].Image = "new" })
	s.reconcileAfter(time.Minute)
	for _, c := range s.sj.Status.Conditions {
		if c.ObservedGeneration != 2 {
			t.Errorf("%s is of generation %d", c.Type, c.ObservedGeneration)
		}
	}
}

func TestRunAndStepsHaveStartAndEndTimes(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test"))
	t0 := s.now
	s.now = t0.Add(time.Minute)
	s.succeedStep("build")
	s.now = t0.Add(2 * time.Minute)
	s.succeedStep("test")

	build, test, status := s.stepStatus("build"), s.stepStatus("test"), s.sj.Status
	got := []time.Time{status.StartTime.Time, build.StartTime.Time, build.CompletionTime.Time, test.StartTime.Time, test.CompletionTime.Time, status.CompletionTime.Time}
	want := []time.Time{t0, t0, t0.Add(time.Minute), t0.Add(time.Minute), t0.Add(2 * time.Minute), t0.Add(2 * time.Minute)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("run's start, build's, test's, run's end (-want, +got):\n%s", diff)
	}
}

func TestShortStepIsRecordedAtItsStartAndItsEnd(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build"))
	if decision := s.reconcileAfter(59 * time.Second); decision.StatusChanged || decision.RequeueAfter != time.Second {
		t.Errorf("want no write for another second, got %+v", decision)
	}
	s.succeedStep("build")
	if got := s.stepStatus("build").JobUID; got != s.newestJob("build").UID {
		t.Errorf("the outcome is recorded without the Job's UID: %q", got)
	}
}

func TestUIDOfALongRunningJobIsRecorded(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build"))
	s.reconcileAfter(time.Minute)
	if got := s.stepStatus("build").JobUID; got != s.newestJob("build").UID {
		t.Errorf("want the UID %s, got %q", s.newestJob("build").UID, got)
	}
}

func TestRefusedStepHasTheReasonUntilItsJobExists(t *testing.T) {
	s := newTestEnv(t, testbuilder.SequentialJob("a", "ns").Step("build").Obj())
	s.createRefusals["build"] = &decision.Refusal{Class: decision.QuotaExceeded, Step: "build", Message: "exceeded quota"}
	s.reconcile()
	s.wantSteps("build: Starting, QuotaExceeded")
	delete(s.createRefusals, "build")
	if d := s.reconcileAfter(time.Second); d.RequeueAfter != time.Second {
		t.Errorf("want to observe the Job in 1 s, got %s", d.RequeueAfter)
	}
	s.reconcileAfter(time.Second)
	s.wantSteps("build: Starting")
}
