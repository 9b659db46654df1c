package sequentialjob

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func TestStepsAreCountedByState(t *testing.T) {
	for title, test := range map[string]struct {
		story story
		state v1alpha1.StepCounts
		want  v1alpha1.Progress
		text  string // of containers and of finally
	}{
		"at the start": {
			nil, v1alpha1.StepCounts{Active: 1}, v1alpha1.Progress{CurrentIndex: new(int32(0)), CurrentStep: "lint"}, "0/2 0/1",
		},
		"after a successful step": {
			story{succeed("lint")},
			v1alpha1.StepCounts{Active: 1, Succeeded: 1},
			v1alpha1.Progress{CurrentIndex: new(int32(1)), CurrentStep: "build", CompletedIndices: []int32{0}},
			"1/2 0/1",
		},
		"after a tolerated failure": {
			story{fail("lint")},
			v1alpha1.StepCounts{Active: 1, Failed: 1},
			v1alpha1.Progress{CurrentIndex: new(int32(1)), CurrentStep: "build"},
			"0/2 0/1",
		},
		"after a failure that fails the run": {
			story{succeed("lint"), fail("build")},
			v1alpha1.StepCounts{Active: 1, Succeeded: 1, Failed: 1},
			v1alpha1.Progress{
				CurrentIndex: new(int32(2)), CurrentStep: "cleanup", CompletedIndices: []int32{0},
				FailedIndex: new(int32(1)), FailureReason: "BackoffLimitExceeded",
			},
			"1/2 0/1",
		},
		"at the end": {
			story{succeed("lint", "build", "cleanup")},
			v1alpha1.StepCounts{Succeeded: 3},
			v1alpha1.Progress{CompletedIndices: []int32{0, 1, 2}},
			"2/2 1/1",
		},
	} {
		t.Run(title, func(t *testing.T) {
			sj := testbuilder.SequentialJob("a", "ns").Step("lint", testbuilder.ContinueOnFailure()).Step("build").Finally("cleanup")
			s := startRun(t, sj).pass(test.story...)
			assert.Equal(t, "state", test.state, s.sj.Status.State)
			assert.Equal(t, "progress", test.want, s.sj.Status.Progress)
			if got := FormatProgress(s.sj, false) + " " + FormatProgress(s.sj, true); got != test.text {
				t.Errorf("%q, want %q", got, test.text)
			}
		})
	}
}

func TestRunAndStepsHaveStartAndEndTimes(t *testing.T) {
	s := startRun(t, sequence("build", "test"))
	t0 := s.now
	s.now = t0.Add(time.Minute)
	s.succeedStep("build")
	s.now = t0.Add(2 * time.Minute)
	s.succeedStep("test")

	build, test, status := s.stepStatus("build"), s.stepStatus("test"), s.sj.Status
	got := []time.Time{status.StartTime.Time, build.StartTime.Time, build.CompletionTime.Time, test.StartTime.Time, test.CompletionTime.Time, status.CompletionTime.Time}
	want := []time.Time{t0, t0, t0.Add(time.Minute), t0.Add(time.Minute), t0.Add(2 * time.Minute), t0.Add(2 * time.Minute)}
	assert.Equal(t, "run's start, build's, test's, run's end", want, got)
}

func TestShortStepIsRecordedAtItsStartAndItsEnd(t *testing.T) {
	s := startRun(t, sequence("build"))
	if decision := s.reconcileAfter(59 * time.Second); decision.StatusChanged || decision.RequeueAfter != time.Second {
		t.Errorf("want no write for another second, got %+v", decision)
	}
	long := startRun(t, sequence("build"))
	long.reconcileAfter(time.Minute)
	s.succeedStep("build")
	for _, s := range []*testEnv{s, long} {
		if got := s.stepStatus("build").JobUID; got != s.newestJob("build").UID {
			t.Errorf("the step is recorded with the UID %q of its Job", got)
		}
	}
}

func TestFinishedConditionsAreThoseOfTheRun(t *testing.T) {
	s := startRun(t, sequence("build").Finally("cleanup"))
	want := func(when string, available, progressing, failed, finished bool) {
		t.Helper()
		for kind, want := range map[string]bool{
			v1alpha1.ConditionAvailable: available, v1alpha1.ConditionProgressing: progressing, v1alpha1.ConditionFailed: failed,
		} {
			condition := meta.FindStatusCondition(s.sj.Status.Conditions, kind)
			if condition == nil || (condition.Status == "True") != want {
				t.Errorf("%s: condition %+v, want %s to be %t", when, condition, kind, want)
			}
		}
		if got := s.sj.Status.CompletionTime != nil; got != finished {
			t.Errorf("%s: has a completionTime: %t, want %t", when, got, finished)
		}
	}
	want("while its first step starts", false, false, false, false)
	s.runPod("build")
	want("while it runs", false, true, false, false)
	s.pass(hasCondition(v1alpha1.ConditionProgressing, `True Running: running step "build"`), fail("build"))
	want("while finally runs", false, true, false, false)
	s.succeedStep("cleanup")
	want("after a failure", false, false, true, true)
	s.pass(rerun(v1alpha1.RerunFromStart))
	want("in a rerun", false, false, false, false)
	s.pass(succeed("build"), succeed("cleanup"))
	want("after success", true, false, false, true)
}

func TestEventsOfARun(t *testing.T) {
	later, completed := wait(time.Minute), events("JobStarted", "JobCompleted", "Completed")
	change := edit(func(spec *v1alpha1.SequentialJobSpec) { spec.Containers[0].WorkingDir = "/x" })
	runScenarios(t, map[string]scenario{
		"success, observed while running":    {sequence("build"), story{later, succeed("build"), later, completed}},
		"success, observed only at the end":  {sequence("build"), story{succeed("build"), later, completed}},
		"failure":                            {sequence("build", "test"), story{fail("build"), later, later, events("JobStarted", "JobFailed", "Failed")}},
		"a changed spec of a run that waits": {sequence("build").Suspend(), story{change, later, events("Suspended", "SpecChanged")}},
		"suspension and resumption": {sequence("build").Suspend(), story{
			resumeRun, later, events("Suspended", "SpecChanged", "Resumed", "JobStarted"),
		}},
		"a lost Job": {sequence("build"), story{later, lose("build"), later, events("JobStarted", "JobFailed", "Failed")}},
		"a lost Job that is replaced": {sequence("build").RerunLostJobs(), story{
			later, lose("build"), succeed("build"), later, events("JobStarted", "JobLost", "JobStarted", "JobCompleted", "Completed"),
		}},
		"a rerun": {sequence("build"), story{
			fail("build"), events("JobStarted", "JobFailed", "Failed"),
			rerun("Failed"), succeed("build"), later, events("RerunStarted", "JobStarted", "JobCompleted", "Completed"),
		}},
		"deletion": {sequence("build"), story{
			func(s *testEnv) { s.deleteSequentialJob() }, events("JobStarted"), removeJobs, events("Terminated"),
		}},
	})
}
