package sequentialjob

import (
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func TestStepsRunOneAfterAnother(t *testing.T) {
	runScenarios(t, map[string]scenario{
		"and the finally steps follow": {sequence("build", "test").Finally("cleanup"), story{
			created("build"), phase(v1alpha1.PhasePending, v1alpha1.ReasonWaiting),
			wait(time.Minute), created("build"), steps("build: Starting", "test: Pending", "cleanup: Pending"),
			succeed("build"), created("build", "test"),
			succeed("test"), created("build", "test", "cleanup"), phase(v1alpha1.PhaseRunning, v1alpha1.ReasonRunningFinally),
			succeed("cleanup"), steps("build: Succeeded", "test: Succeeded", "cleanup: Succeeded"),
			phase(v1alpha1.PhaseCompleted, v1alpha1.ReasonCompleted),
		}},
		"unless another controller manages them": {sequence("build").ManagedBy("acme.io/controller"), story{
			created(), hasFinalizer(false), func(s *testEnv) { assert.Equal(s.t, "run", int32(0), s.sj.Status.Run) },
		}},
		"after a Job that is not known was deleted": {sequence("build", "test"), story{
			func(s *testEnv) {
				stray := testbuilder.Job(s.newestJob("build").DeepCopy()).Created("stray", s.now).Obj()
				stray.Name = "a-forgotten"
				s.jobs = append([]*batchv1.Job{stray}, s.jobs...)
			},
			succeed("build"), created("build"), removeJobs, created("build", "test"),
		}},
		"this operator may be named": {sequence("build").ManagedBy(v1alpha1.SequentialJobManager), story{created("build")}},
	})
}

// hasFinalizer checks whether the SequentialJob has the finalizer, which it has while something runs.
func hasFinalizer(want bool) func(*testEnv) {
	return func(s *testEnv) { assert.Equal(s.t, "it has the finalizer", want, len(s.sj.Finalizers) > 0) }
}

func jobIsSuspended(s *testEnv) {
	testbuilder.Job(s.newestJob("build")).Suspended(s.now)
	s.reconcile()
}

func jobIsResumed(s *testEnv) {
	s.newestJob("build").Spec.Suspend, s.newestJob("build").Status.Conditions = new(false), nil
	testbuilder.Job(s.newestJob("build")).Active(s.now)
}

func TestASuspendedRunStartsNothing(t *testing.T) {
	isSuspended := phase(v1alpha1.PhaseSuspended, v1alpha1.ReasonSuspended)
	isWaiting := hasCondition(v1alpha1.ConditionSuspended, `False Suspending: waiting for step "build" to end`)
	runScenarios(t, map[string]scenario{
		"from its creation": {sequence("build").Suspend(), story{
			created(), isSuspended, hasFinalizer(false), resumeRun, created("build"), phase(v1alpha1.PhasePending, v1alpha1.ReasonWaiting),
		}},
		"after the step that runs": {sequence("build", "test"), story{
			suspendRun, isWaiting, wait(time.Minute), jobHasSuspend(false), steps("build: Starting", "test: Pending"),
			succeed("build"), created("build"), isSuspended,
			hasCondition(v1alpha1.ConditionSuspended, "True Suspended: spec.suspend is true"),
			resumeRun, created("build", "test"),
		}},
		"after a failure": {sequence("build").Finally("clean"), story{suspendRun, fail("build"), created("build"), resumeRun, created("build", "clean")}},
		"before the Job of its step exists, which is then the first attempt": {sequence("lint", "build"), story{
			refuse("build", decision.QuotaExceeded), succeed("lint"), suspendRun, steps("lint: Succeeded", "build: Pending"), isSuspended,
			accept("build"), created("lint"), resumeRun, created("lint", "build"),
			func(s *testEnv) { assert.Equal(s.t, "attempt", int32(1), s.stepStatus("build").Attempt) },
		}},
		"and its deadline starts again when it is resumed": {sequence("build", "test").ActiveDeadline(60), story{
			suspendRun, succeed("build"), wait(time.Hour), steps("build: Succeeded", "test: Pending"),
			resumeRun, wait(59 * time.Second), steps("build: Succeeded", "test: Starting"),
			wait(time.Second), steps("build: Succeeded", "test: Stopping, DeadlineExceeded"),
		}},
		"with Immediate, its Job is suspended, and resumed with a new deadline": {sequence("build", "test").ActiveDeadline(60).SuspendImmediately(), story{
			suspendRun, isWaiting, jobHasSuspend(true), jobIsSuspended,
			steps("build: Suspended", "test: Pending"), isSuspended, hasFinalizer(false),
			wait(time.Hour), resumeRun, jobHasSuspend(false), wait(59 * time.Second), steps("build: Starting", "test: Pending"),
		}},
		"with Immediate, a Job that another client resumes is suspended again": {sequence("build").SuspendImmediately(), story{
			suspendRun, jobIsSuspended, jobIsResumed, wait(0), jobHasSuspend(true), steps("build: Starting"),
		}},
		"with Immediate, the Job in a queue is replaced": {
			sequence("build").SuspendImmediately().JobLabel(queueLabel, "batch"), story{
				suspendRun, jobHasSuspend(false), steps("build: Suspending, Interrupted"),
				removeJobs, steps("build: Interrupted, Interrupted"), isSuspended, resumeRun, created("build", "build"),
			},
		},
	})
}

func jobHasSuspend(want bool) func(*testEnv) {
	return func(s *testEnv) {
		assert.Equal(s.t, "the Job is suspended", want, isSuspended(s.newestJob("build")))
	}
}

func TestAJobThatOthersSuspendIsNotResumed(t *testing.T) {
	queued := func() *testbuilder.SequentialJobBuilder { return sequence("build").JobLabel(queueLabel, "batch") }
	runScenarios(t, map[string]scenario{
		"a queue":        {queued(), story{jobIsSuspended, wait(time.Minute), jobHasSuspend(true)}},
		"another client": {sequence("build"), story{jobIsSuspended, wait(time.Minute), jobHasSuspend(true), hasFinalizer(true)}},
		"a queue, until the deadline of the run": {queued().ActiveDeadline(60), story{
			jobIsSuspended, wait(time.Second), steps("build: Queued, Queued"), wait(time.Minute), removeJobs,
			steps("build: Failed, DeadlineExceeded"), phase(v1alpha1.PhaseFailed, v1alpha1.ReasonDeadlineExceeded),
		}},
		"another client, until the deadline of the run": {sequence("build").ActiveDeadline(60), story{
			jobIsSuspended, wait(time.Minute), steps("build: Stopping, DeadlineExceeded"),
		}},
	})
}

// jobIsAdmitted resumes the Job of build and starts a Pod, as a queue and the Job controller do.
func jobIsAdmitted(s *testEnv) {
	jobIsResumed(s)
	s.startPod("build")
	s.pass(wait(0), wait(startReportDelay))
}

// jobIsPreempted suspends the Job of build as a queue does, which deletes its Pod.
func jobIsPreempted(s *testEnv) {
	testbuilder.Job(s.newestJob("build")).Suspended(s.now)
	s.unfinishedPods = nil
	s.reconcileAfter(startReportDelay)
}

func TestPreemptedStepContinuesItsAttempt(t *testing.T) {
	s := startRun(t, sequence("build", "test").JobLabel(queueLabel, "batch"))
	s.pass(jobIsPreempted, phase(v1alpha1.PhasePending, v1alpha1.ReasonWaiting)) // before it was admitted
	for range 3 {
		s.pass(steps("build: Queued, Queued", "test: Pending"), wait(time.Hour), jobIsAdmitted, steps("build: Running", "test: Pending"), jobIsPreempted)
		s.pass(phase(v1alpha1.PhaseRunning, v1alpha1.ReasonRunning))
	}
	s.pass(jobIsAdmitted, succeed("build"), steps("build: Succeeded", "test: Starting"), created("build", "test"))
	step := s.stepStatus("build")
	require.True(t, step.Attempt == 1 && step.FailedPods == 0 && step.FailedAttempts == 0, "%+v", step)
}

func TestResumedStepIsNotRunningBecauseThePodBeforeStillStops(t *testing.T) {
	s := startRun(t, sequence("build").JobLabel(queueLabel, "batch")).pass(jobIsAdmitted, steps("build: Running"))
	stopping := s.unfinishedPods
	stopping[0].DeletionTimestamp = new(metav1.NewTime(s.now.Add(time.Minute)))
	jobIsPreempted(s)
	s.unfinishedPods = stopping
	s.newestJob("build").Spec.Suspend, s.newestJob("build").Status.Conditions = new(false), nil
	s.pass(wait(startReportDelay), steps("build: Starting"), jobIsAdmitted, steps("build: Running"))
}

func TestTimeLimitsOfAStepDoNotCountInAQueue(t *testing.T) {
	s := startRun(t, sequence().Step("build", testbuilder.StepStartDeadline(30)).JobLabel(queueLabel, "batch"))
	for range 2 { // also after a preemption
		s.pass(jobIsPreempted, wait(time.Hour), steps("build: Queued, Queued"), jobIsAdmitted, steps("build: Running"))
		got := s.stepStatus("build").StartTime
		require.True(t, got.Time.Equal(s.now.Add(-startReportDelay)), "the step started at %s, want the time at which it was admitted", got)
	}
}

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
		require.True(s.t, s.sj.Status.Run == 2 && s.sj.Status.RerunID == "2" && s.sj.Status.CompletionTime == nil, "want run 2, got %+v", s.sj.Status)
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
		"from a tolerated failure, if no other":  {lint(), story{fail("lint"), succeed("build"), rerun("Failed"), created("lint", "build", "lint")}},
		"from the failure that is not tolerated": {lint(), story{fail("lint"), fail("build"), rerun("Failed"), created("lint", "build", "build")}},
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
	s.changeSpec(setImage("new"))
	decision := s.reconcileAfter(time.Minute)
	require.True(t, !decision.HasActions(), "the run is interrupted: %+v", decision)
	testbuilder.Job(s.newestJob("build")).Complete(s.now)
	decision = s.decideAndRecord(nil)
	require.True(t, !decision.DeleteExpired && decision.RequeueAfter != 0, "want another reconciliation at once, got %+v", decision)
	s.pass(wait(0), created("build", "build"), runsImage("build", "new"), hasCondition(v1alpha1.ConditionSpecAccepted, "True Accepted: "))
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

func TestDeletionStopsTheRunningStepFirst(t *testing.T) {
	s := startRun(t, sequence("build", "test"))
	require.True(t, len(s.deleteSequentialJob().DeleteJobs) == 1, "the Job is not deleted")
	s.pass(phase(v1alpha1.PhaseTerminating, v1alpha1.ReasonTerminating), wait(time.Minute), hasFinalizer(true))
	s.pass(removeJobs, hasFinalizer(false), created("build"))
}

// A failed list must not be treated as an empty one.
func TestFinalizerIsKeptUntilALiveListOfJobs(t *testing.T) {
	s := startRun(t, sequence("build"))
	s.sj.DeletionTimestamp = new(metav1.NewTime(s.now))
	decision := Decide(Observation{SequentialJob: s.sj, Now: s.now}) // the cache shows no Job
	require.True(t, decision.Question != nil && decision.Question.AllJobs && !decision.HasActions(), "want a live list first, got %+v", decision)
}

func TestDeletionDeletesOnlyJobsThatMayRun(t *testing.T) {
	hasEnded := func(s *testEnv) { testbuilder.Job(s.newestJob("build")).Complete(s.now) }
	isOrphaned := func(s *testEnv) { s.sj.Finalizers = append(s.sj.Finalizers, metav1.FinalizerOrphanDependents) }
	for title, test := range map[string]struct {
		sj      *testbuilder.SequentialJobBuilder
		happens func(*testEnv)
		deleted int // Jobs
	}{
		"one that the cache does not show":        {sequence("build"), func(s *testEnv) { s.uncached[s.newestJob("build").Name] = true }, 1},
		"none that has ended, and no step starts": {sequence("build").Finally("clean"), hasEnded, 0},
		"none that the user wants to keep":        {sequence("build"), isOrphaned, 0},
		"none without the finalizer":              {sequence("build").Suspend(), func(*testEnv) {}, 0},
	} {
		t.Run(title, func(t *testing.T) {
			d := startRun(t, test.sj).pass(test.happens).deleteSequentialJob()
			require.True(t, len(d.DeleteJobs) == test.deleted && d.CreateJob == nil && d.NeedsFinalizer == (test.deleted > 0), "%+v", d)
		})
	}
}
