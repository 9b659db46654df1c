package sequentialjob

import (
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// requestRerun requests the second run.
func requestRerun(from string) func(*v1alpha1.SequentialJobSpec) {
	return func(spec *v1alpha1.SequentialJobSpec) {
		spec.Rerun = &v1alpha1.SequenceRerun{Rerun: v1alpha1.Rerun{ID: "2"}, From: from}
	}
}

func TestRerunStartsAnotherRun(t *testing.T) {
	tests := map[string]struct {
		from        string
		wantCreated []string
		wantSteps   []string
	}{
		"from the failed step": {
			from: "Failed", wantCreated: []string{"build", "test", "cleanup", "test"},
			wantSteps: []string{"build: Succeeded", "test: Starting", "ship: Pending", "cleanup: Pending"},
		},
		"from the start": {
			from: "Start", wantCreated: []string{"build", "test", "cleanup", "build"},
			wantSteps: []string{"build: Starting", "test: Pending", "ship: Pending", "cleanup: Pending"},
		},
		"from a step": {
			from: "test", wantCreated: []string{"build", "test", "cleanup", "test"},
			wantSteps: []string{"build: Succeeded", "test: Starting", "ship: Pending", "cleanup: Pending"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := startAtSecondStep(t)
			s.failStep("test")
			s.succeedStep("cleanup")
			s.changeSpec(requestRerun(test.from))
			s.reconcile()
			s.wantCreated(test.wantCreated...)
			s.wantSteps(test.wantSteps...)
			if s.sj.Status.Run != 2 || s.sj.Status.RerunID != "2" || s.sj.Status.CompletionTime != nil {
				t.Errorf("want run 2 to be running, got %+v", s.sj.Status)
			}
		})
	}
}

func TestRerunIDSetAtCreationRequestsNothing(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Rerun("1", "Start"))
	s.succeedStep("build")
	s.reconcileAfter(time.Minute)
	s.wantCreated("build")
	if s.sj.Status.Run != 1 {
		t.Errorf("want run 1, got %d", s.sj.Status.Run)
	}
}

func TestEachIDStartsOneRerun(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build"))
	s.failStep("build")
	s.changeSpec(requestRerun("Failed"))
	s.reconcile()
	s.failStep("build")
	s.reconcileAfter(time.Minute)
	s.wantCreated("build", "build")
}

// For example, a GitOps tool restores the ID in Git after a user requested a rerun.
func TestIDOfAnEarlierRerunRequestsAnother(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Rerun("1", "Start"))
	s.succeedStep("build")
	for _, id := range []string{"2", "1", "2"} {
		s.changeSpec(func(spec *v1alpha1.SequentialJobSpec) { spec.Rerun.ID = id })
		s.reconcile()
		s.succeedStep("build")
	}
	s.wantCreated("build", "build", "build", "build")
}

func TestRerunRequestedDuringARunStartsAfterIt(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").TTLAfterFinished(0))
	s.changeSpec(requestRerun("Start"))
	if decision := s.reconcileAfter(time.Minute); decision.HasActions() {
		t.Errorf("the run is interrupted: %+v", decision)
	}
	testbuilder.Job(s.newestJob("build")).Complete(s.now)
	decision := s.decide(nil)
	s.record(decision)
	if decision.DeleteExpired || decision.RequeueAfter == 0 {
		t.Errorf("want another reconciliation at once, got %+v", decision)
	}
	s.reconcile()
	s.wantCreated("build", "build")
}

func TestRerunUsesTheChangedSpec(t *testing.T) {
	s := startAtSecondStep(t)
	s.failStep("test")
	s.succeedStep("cleanup")
	s.changeSpec(func(spec *v1alpha1.SequentialJobSpec) {
		spec.Containers[1].Image = "fixed"
		requestRerun("Failed")(spec)
	})
	s.reconcile()
	if got := s.newestJob("test").Spec.Template.Spec.Containers[0].Image; got != "fixed" {
		t.Errorf("test runs %s", got)
	}
}

func TestChangeOfAFinishedSequentialJobStartsNothing(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build"))
	s.succeedStep("build")
	s.changeSpec(func(spec *v1alpha1.SequentialJobSpec) {
		spec.Containers = append(spec.Containers, testbuilder.Step("more"))
	})
	s.reconcile()
	s.wantCreated("build")
	s.wantPhase(v1alpha1.PhaseCompleted, v1alpha1.ReasonCompleted)
}

func TestInvalidReruns(t *testing.T) {
	tests := map[string]struct {
		edit func(*v1alpha1.SequentialJobSpec)
		want string
	}{
		"from a step that does not exist": {
			edit: requestRerun("nope"),
			want: `cannot rerun from step "nope": no step without finally has this name`,
		},
		"from a step after the failed step": {
			edit: requestRerun("ship"),
			want: `cannot rerun from step "ship": step "test" before it has not succeeded`,
		},
		"from a step after a new step": {
			edit: func(spec *v1alpha1.SequentialJobSpec) {
				spec.Containers[0].Name = "compile"
				requestRerun("test")(spec)
			},
			want: `cannot rerun from step "test": step "compile" before it has not succeeded`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := startAtSecondStep(t)
			s.failStep("test")
			s.succeedStep("cleanup")
			s.changeSpec(test.edit)
			if err := CheckRerun(&s.sj.Spec, &s.sj.Status); err == nil || err.Error() != test.want {
				t.Errorf("want error %q, got %v", test.want, err)
			}
			s.reconcile()
			s.wantCreated("build", "test", "cleanup")
			s.wantCondition(v1alpha1.ConditionSpecAccepted, "False RerunInvalid: "+test.want)
			s.wantPhase(v1alpha1.PhaseFailed, v1alpha1.ReasonStepFailed)
		})
	}
}

func TestRerunFromFailedRequiresAFailure(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build"))
	s.succeedStep("build")
	s.changeSpec(requestRerun("Failed"))
	s.reconcile()
	s.wantCreated("build")
	s.wantCondition(v1alpha1.ConditionSpecAccepted, "False RerunInvalid: cannot rerun from Failed: no step failed; set from to Start or to a step's name")
	s.wantPhase(v1alpha1.PhaseCompleted, v1alpha1.ReasonCompleted)

	s.changeSpec(requestRerun("Start"))
	s.reconcile()
	s.wantCreated("build", "build")
	if !meta.IsStatusConditionTrue(s.sj.Status.Conditions, v1alpha1.ConditionSpecAccepted) {
		t.Error("the condition is still True")
	}
}

func TestFirstStepOfARerunFromFailed(t *testing.T) {
	t.Run("the tolerated failure if it is the only failure", func(t *testing.T) {
		s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("lint", testbuilder.ContinueOnFailure()).Step("build"))
		s.failStep("lint")
		s.succeedStep("build")
		s.changeSpec(requestRerun("Failed"))
		s.reconcile()
		s.wantCreated("lint", "build", "lint")
	})
	t.Run("the failure that failed the run, not an earlier tolerated failure", func(t *testing.T) {
		s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("lint", testbuilder.ContinueOnFailure()).Step("build"))
		s.failStep("lint")
		s.failStep("build")
		s.changeSpec(requestRerun("Failed"))
		s.reconcile()
		s.wantCreated("lint", "build", "build")
	})
	t.Run("the first finally step if only a finally step failed", func(t *testing.T) {
		s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Finally("notify").Finally("cleanup"))
		s.succeedStep("build")
		s.succeedStep("notify")
		s.failStep("cleanup")
		s.changeSpec(requestRerun("Failed"))
		s.reconcile()
		s.wantCreated("build", "notify", "cleanup", "notify")
	})
	t.Run("the first step if the spec was refused", func(t *testing.T) {
		s := newTestEnv(t, testbuilder.SequentialJob("a", "ns").Step("build", testbuilder.StepImage("")).Obj())
		s.reconcile()
		s.wantCreated()
		s.changeSpec(func(spec *v1alpha1.SequentialJobSpec) {
			spec.Containers[0].Image = "fixed"
			requestRerun("Failed")(spec)
		})
		s.reconcile()
		s.wantCreated("build")
	})
	t.Run("the step that was skipped because of the deadline", func(t *testing.T) {
		s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test").ActiveDeadline(60))
		s.now = s.now.Add(time.Hour)
		s.succeedStep("build")
		s.changeSpec(requestRerun("Failed"))
		s.reconcile()
		s.wantCreated("build", "test")
	})
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
			sj := testbuilder.SequentialJob("a", "ns").Step("extract", testbuilder.RecordOutput()).Step("load").Obj()
			sj.Spec.Parameters = []v1alpha1.Parameter{{Name: "DATE", Value: "1"}, {Name: "MODE", Value: "all"}}
			s := newTestEnv(t, sj)
			s.reconcile()
			s.succeedStep("extract")
			s.failStep("load")
			s.events = nil
			s.changeSpec(func(spec *v1alpha1.SequentialJobSpec) {
				spec.Rerun = &v1alpha1.SequenceRerun{Rerun: v1alpha1.Rerun{ID: "again"}, From: test.from, Parameters: []v1alpha1.Parameter{{Name: "DATE", Value: test.value}}}
			})
			s.reconcile()
			warned := slices.ContainsFunc(s.events, func(e decision.Event) bool {
				return e.Type == corev1.EventTypeWarning && strings.Contains(e.Message, `up to "extract"`) && strings.Contains(e.Message, "parameters DATE;")
			})
			if warned != test.warns {
				t.Errorf("events %+v", s.events)
			}
		})
	}
}

// The columns of kubectl get show the step and the reason also after the end.
func TestEndedRunNamesTheFailedStep(t *testing.T) {
	for name, test := range map[string]struct {
		fails, step, reason string
	}{
		"nothing":         {"", "", ""},
		"a step":          {"load", "load", batchv1.JobReasonFailedIndexes},
		"a finally step":  {"clean", "clean", v1alpha1.ReasonFinallyFailed},
		"both":            {"load clean", "load", batchv1.JobReasonFailedIndexes},
		"a tolerated one": {"extract", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			tolerated := testbuilder.WithStepOptions(func(o *v1alpha1.StepOptions) { o.OnFailure = v1alpha1.OnFailureContinue })
			s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("extract", tolerated).Step("load").Step("check").Finally("clean"))
			for range 4 {
				step := activeStep(s.sj.Status.Steps)
				switch {
				case step == nil:
				case slices.Contains(strings.Fields(test.fails), step.Name):
					job := s.newestJob(step.Name)
					testbuilder.Job(job).Failed(batchv1.JobReasonFailedIndexes, "Job has failed indexes", s.now)
					job.Status.FailedIndexes = new("1,3-5")
					s.reconcile()
				default:
					s.succeedStep(step.Name)
				}
			}
			if got := &s.sj.Status; !IsFinished(got) || got.Progress.CurrentStep != test.step || got.Reason != test.reason {
				t.Errorf("step %q, reason %q, want %q, %q", got.Progress.CurrentStep, got.Reason, test.step, test.reason)
			}
			for failed := range strings.FieldsSeq(test.fails) {
				if message := s.stepStatus(failed).Message; message != "failed indexes 1,3-5: Job has failed indexes" {
					t.Errorf("message %q", message)
				}
			}
		})
	}
}
