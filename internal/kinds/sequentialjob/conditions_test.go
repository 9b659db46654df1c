package sequentialjob

import (
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func TestStepsAreCountedByState(t *testing.T) {
	type progress = v1alpha1.Progress
	for title, test := range map[string]struct {
		story story
		state v1alpha1.StepCounts
		want  progress
		text  string // of containers and of finally
	}{
		"at the start": {nil, v1alpha1.StepCounts{Active: 1}, progress{CurrentIndex: new(int32(0)), CurrentStep: "lint"}, "0/2 0/1"},
		"after a successful step": {
			story{succeed("lint")},
			v1alpha1.StepCounts{Active: 1, Succeeded: 1},
			progress{CurrentIndex: new(int32(1)), CurrentStep: "build", CompletedIndices: []int32{0}},
			"1/2 0/1",
		},
		"after a tolerated failure": {
			story{fail("lint")}, v1alpha1.StepCounts{Active: 1, Failed: 1}, progress{CurrentIndex: new(int32(1)), CurrentStep: "build"}, "0/2 0/1",
		},
		"after a failure that fails the run": {
			story{succeed("lint"), fail("build")}, v1alpha1.StepCounts{Active: 1, Succeeded: 1, Failed: 1}, progress{
				CurrentIndex: new(int32(2)), CurrentStep: "cleanup", CompletedIndices: []int32{0},
				FailedIndex: new(int32(1)), FailureReason: "BackoffLimitExceeded",
			}, "1/2 0/1",
		},
		"at the end": {
			story{succeed("lint", "build", "cleanup")}, v1alpha1.StepCounts{Succeeded: 3}, progress{CompletedIndices: []int32{0, 1, 2}}, "2/2 1/1",
		},
	} {
		t.Run(title, func(t *testing.T) {
			sj := sequence().Step("lint", testbuilder.ContinueOnFailure()).Step("build").Finally("cleanup")
			s := startRun(t, sj).pass(test.story...)
			assert.Equal(t, "state", test.state, s.sj.Status.State)
			assert.Equal(t, "progress", test.want, s.sj.Status.Progress)
			assert.Equal(t, "text", test.text, FormatProgress(s.sj, false)+" "+FormatProgress(s.sj, true))
		})
	}
}

func TestRunAndStepsHaveStartAndEndTimes(t *testing.T) {
	s := startRun(t, sequence("build", "test"))
	t0 := s.now
	for _, step := range []string{"build", "test"} {
		s.now = s.now.Add(time.Minute)
		s.succeedStep(step)
	}
	build, test, status := s.stepStatus("build"), s.stepStatus("test"), s.sj.Status
	got := []time.Time{status.StartTime.Time, build.StartTime.Time, build.CompletionTime.Time, test.StartTime.Time, test.CompletionTime.Time, status.CompletionTime.Time}
	want := []time.Time{t0, t0, t0.Add(time.Minute), t0.Add(time.Minute), t0.Add(2 * time.Minute), t0.Add(2 * time.Minute)}
	assert.Equal(t, "run's start, build's, test's, run's end", want, got)
}

func TestShortStepIsRecordedAtItsStartAndItsEnd(t *testing.T) {
	s := startRun(t, sequence("build"))
	decision := s.reconcileAfter(59 * time.Second)
	require.True(t, !decision.StatusChanged && decision.RequeueAfter == time.Second, "want no write for another second, got %+v", decision)
	long := startRun(t, sequence("build"))
	long.reconcileAfter(time.Minute)
	s.succeedStep("build")
	for _, s := range []*testEnv{s, long} {
		assert.Equal(t, "UID of the Job in the status", s.newestJob("build").UID, s.stepStatus("build").JobUID)
	}
}

func TestEventsOfARun(t *testing.T) {
	later, completed := wait(time.Minute), events("JobStarted", "JobCompleted", "Completed")
	change := edit(func(spec *v1alpha1.SequentialJobSpec) { spec.Containers[0].WorkingDir = "/x" })
	runScenarios(t, map[string]scenario{
		"success, observed while running":    {sequence("build"), story{later, succeed("build"), later, completed}},
		"success, observed only at the end":  {sequence("build"), story{succeed("build"), later, completed}},
		"a changed spec of a run that waits": {sequence("build").Suspend(), story{change, later, events("Suspended", "SpecChanged")}},
		"suspension and resumption": {sequence("build").Suspend(), story{
			resumeRun, later, events("Suspended", "SpecChanged", "Resumed", "JobStarted"),
		}},
		"a lost Job": {sequence("build"), story{later, lose("build"), later, events("JobStarted", "JobFailed", "Failed")}},
		"a rerun": {sequence("build"), story{
			fail("build"), events("JobStarted", "JobFailed", "Failed"),
			rerun("Failed"), succeed("build"), later, events("RerunStarted", "JobStarted", "JobCompleted", "Completed"),
		}},
		"deletion": {sequence("build"), story{func(s *testEnv) { s.deleteSequentialJob() }, events("JobStarted"), removeJobs, events("Terminated")}},
	})
}
