package sequentialjob

import (
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// requestRerun requests the second run.
func requestRerun(from string) func(*v1alpha1.SequentialJobSpec) {
	return func(spec *v1alpha1.SequentialJobSpec) {
		spec.Rerun = &v1alpha1.SequenceRerun{Rerun: v1alpha1.Rerun{ID: "2"}, From: from}
	}
}

func TestRerunStartsAnotherRun(t *testing.T) {
	// failed is a run whose second step of three failed.
	failed := func(more ...func(*testEnv)) scenario {
		return scenario{sequence("build", "test", "ship").Finally("cleanup"), append(story{succeed("build"), fail("test"), succeed("cleanup")}, more...)}
	}
	lint := func() *testbuilder.SequentialJobBuilder {
		return sequence().Step("lint", testbuilder.ContinueOnFailure()).Step("build")
	}
	isSecondRun := func(s *testEnv) {
		require.True(s.t, s.sj.Status.Run == 2 && s.sj.Status.RerunID == "2" && s.sj.Status.CompletionTime == nil,
			"want run 2 to be running, got %+v", s.sj.Status)
	}
	fromTest := steps("build: Succeeded", "test: Starting", "ship: Pending", "cleanup: Pending")
	setID := func(id string) func(*testEnv) {
		return edit(func(spec *v1alpha1.SequentialJobSpec) {
			spec.Rerun = &v1alpha1.SequenceRerun{Rerun: v1alpha1.Rerun{ID: id}, From: "Start"}
		})
	}
	runScenarios(t, map[string]scenario{
		"from the failed step": failed(rerun("Failed"), created("build", "test", "cleanup", "test"), fromTest, isSecondRun),
		"from a step":          failed(rerun("test"), created("build", "test", "cleanup", "test"), fromTest, isSecondRun),
		"from the start": failed(rerun("Start"), created("build", "test", "cleanup", "build"), isSecondRun,
			steps("build: Starting", "test: Pending", "ship: Pending", "cleanup: Pending")),
		"from the tolerated failure, if it is the only failure": {lint(), story{
			fail("lint"), succeed("build"), rerun("Failed"), created("lint", "build", "lint"),
		}},
		"from the failure that failed the run, not from a tolerated one": {lint(), story{
			fail("lint"), fail("build"), rerun("Failed"), created("lint", "build", "build"),
		}},
		"from the first finally step, if only a finally step failed": {sequence("build").Finally("notify").Finally("cleanup"), story{
			succeed("build", "notify"), fail("cleanup"), rerun("Failed"), created("build", "notify", "cleanup", "notify"),
		}},
		"from the first step, if the spec was refused": {sequence().Step("build", testbuilder.StepImage("")), story{
			created(), edit(setImage("fixed")), rerun("Failed"), created("build"),
		}},
		"from the step that was skipped because of the deadline": {sequence("build", "test").ActiveDeadline(60), story{
			func(s *testEnv) { s.now = s.now.Add(time.Hour) }, succeed("build"), rerun("Failed"), created("build", "test"),
		}},
		"once for each id": {sequence("build"), story{fail("build"), rerun("Failed"), fail("build"), wait(time.Minute), created("build", "build")}},
		"not for an id that is set at the creation, but for an earlier one": { // as a GitOps tool does that restores the id in Git
			sequence("build").Rerun("1", "Start"), story{
				succeed("build"), wait(time.Minute), created("build"),
				setID("2"), succeed("build"), setID("1"), succeed("build"), setID("2"), created("build", "build", "build", "build"),
			},
		},
		"not for a change of the spec": {sequence("build"), story{
			succeed("build"),
			edit(func(spec *v1alpha1.SequentialJobSpec) {
				spec.Containers = append(spec.Containers, testbuilder.Step("more"))
			}),
			created("build"), phase(v1alpha1.PhaseCompleted, v1alpha1.ReasonCompleted),
		}},
		"with the changed spec": failed(
			edit(func(spec *v1alpha1.SequentialJobSpec) { spec.Containers[1].Image = "fixed" }), rerun("Failed"), runsImage("test", "fixed"),
		),
	})
}

func TestRerunRequestedDuringARunStartsAfterIt(t *testing.T) {
	s := startRun(t, sequence("build").TTLAfterFinished(0))
	s.changeSpec(requestRerun("Start"))
	if decision := s.reconcileAfter(time.Minute); decision.HasActions() {
		t.Errorf("the run is interrupted: %+v", decision)
	}
	testbuilder.Job(s.newestJob("build")).Complete(s.now)
	decision := s.decideAndRecord(nil)
	require.True(t, !decision.DeleteExpired && decision.RequeueAfter != 0, "want another reconciliation at once, got %+v", decision)
	s.pass(wait(0), created("build", "build"))
}

func TestInvalidReruns(t *testing.T) {
	for title, test := range map[string]struct {
		from, want string
		rename     bool
	}{
		"from a step that does not exist":   {"nope", `cannot rerun from step "nope": no step without finally has this name`, false},
		"from a step after the failed step": {"ship", `cannot rerun from step "ship": step "test" before it has not succeeded`, false},
		"from a step after a new step":      {"test", `cannot rerun from step "test": step "compile" before it has not succeeded`, true},
	} {
		t.Run(title, func(t *testing.T) {
			s := startAtSecondStep(t)
			s.pass(fail("test"), succeed("cleanup"))
			if test.rename {
				s.changeSpec(func(spec *v1alpha1.SequentialJobSpec) { spec.Containers[0].Name = "compile" })
			}
			s.changeSpec(requestRerun(test.from))
			err := CheckRerun(&s.sj.Spec, &s.sj.Status)
			require.True(t, err != nil && err.Error() == test.want, "want error %q, got %v", test.want, err)
			s.pass(
				wait(0), created("build", "test", "cleanup"), phase(v1alpha1.PhaseFailed, v1alpha1.ReasonStepFailed),
				hasCondition(v1alpha1.ConditionSpecAccepted, "False RerunInvalid: "+test.want),
			)
		})
	}
	const nothingFailed = "False RerunInvalid: cannot rerun from Failed: no step failed; set from to Start or to a step's name"
	startRun(t, sequence("build")).pass(
		succeed("build"), rerun("Failed"), created("build"), hasCondition(v1alpha1.ConditionSpecAccepted, nothingFailed),
		rerun("Start"), created("build", "build"), hasCondition(v1alpha1.ConditionSpecAccepted, "True Accepted: "),
	)
}

func TestRerunWithOtherParametersWarnsAboutKeptOutcomes(t *testing.T) {
	for name, test := range map[string]struct {
		from, value string
		warns       bool
	}{
		"from a later step with another value":    {"load", "2", true},
		"from a later step with the same value":   {"load", "1", false},
		"from the first step with another value":  {"extract", "2", false},
		"from the failed step with another value": {v1alpha1.RerunFromFailed, "2", true},
		"from the start with another value":       {v1alpha1.RerunFromStart, "2", false},
	} {
		t.Run(name, func(t *testing.T) {
			sj := sequence().Step("extract", testbuilder.RecordOutput()).Step("load").Obj()
			sj.Spec.Parameters = []v1alpha1.Parameter{{Name: "DATE", Value: "1"}, {Name: "MODE", Value: "all"}}
			s := newTestEnv(t, sj).pass(wait(0), succeed("extract"), fail("load"))
			s.events = nil
			s.pass(edit(func(spec *v1alpha1.SequentialJobSpec) {
				requestRerun(test.from)(spec)
				spec.Rerun.Parameters = []v1alpha1.Parameter{{Name: "DATE", Value: test.value}}
			}))
			warned := slices.ContainsFunc(s.events, func(e decision.Event) bool {
				return e.Type == corev1.EventTypeWarning && strings.Contains(e.Message, `up to "extract"`) && strings.Contains(e.Message, "parameters DATE;")
			})
			assert.Equal(t, "warned", test.warns, warned)
		})
	}
}

// The columns of kubectl get show the step and the reason also after the end.
func TestEndedRunNamesTheFailedStep(t *testing.T) {
	failsIndexes := func(step string) func(*testEnv) {
		return func(s *testEnv) {
			job := testbuilder.Job(s.newestJob(step)).Failed(batchv1.JobReasonFailedIndexes, "Job has failed indexes", s.now).Obj()
			job.Status.FailedIndexes = new("1,3-5")
			s.reconcile()
			assert.Equal(s.t, "message", "failed indexes 1,3-5: Job has failed indexes", s.stepStatus(step).Message)
		}
	}
	for name, test := range map[string]struct {
		story        story
		step, reason string
	}{
		"nothing":         {story{succeed("extract", "load", "check", "clean")}, "", ""},
		"a step":          {story{succeed("extract"), failsIndexes("load"), succeed("clean")}, "load", batchv1.JobReasonFailedIndexes},
		"a finally step":  {story{succeed("extract", "load", "check"), failsIndexes("clean")}, "clean", v1alpha1.ReasonFinallyFailed},
		"both":            {story{succeed("extract"), failsIndexes("load"), failsIndexes("clean")}, "load", batchv1.JobReasonFailedIndexes},
		"a tolerated one": {story{failsIndexes("extract"), succeed("load", "check", "clean")}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := startRun(t, sequence().Step("extract", testbuilder.ContinueOnFailure()).Step("load").Step("check").Finally("clean")).pass(test.story...)
			if got := &s.sj.Status; !IsFinished(got) || got.Progress.CurrentStep != test.step || got.Reason != test.reason {
				t.Errorf("step %q, reason %q, want %q, %q", got.Progress.CurrentStep, got.Reason, test.step, test.reason)
			}
		})
	}
}
