package sequentialjob

import (
	"math"
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

const backoffLimitMessage = "BackoffLimitExceeded: Job has reached the specified backoff limit"

func TestAFailureEndsTheRunUnlessItIsTolerated(t *testing.T) {
	tolerated := func(options ...testbuilder.StepOption) *testbuilder.SequentialJobBuilder {
		return sequence().Step("lint", append(options, testbuilder.ContinueOnFailure())...).Step("build")
	}
	isTolerated := func(s *testEnv) {
		require.True(s.t, s.stepStatus("lint").Tolerated, "the failure of lint is not tolerated")
	}
	const text = `StepFailed: step "test" failed: ` + backoffLimitMessage
	runScenarios(t, map[string]scenario{
		"of a step": {sequence("build", "test", "ship"), story{
			succeed("build"), fail("test"), phase(v1alpha1.PhaseFailed, v1alpha1.ReasonStepFailed),
			steps("build: Succeeded", "test: Failed, BackoffLimitExceeded", "ship: Skipped, PreviousStepFailed"),
			hasCondition(v1alpha1.ConditionFailed, "True "+text), hasCondition(v1alpha1.ConditionAvailable, "False "+text),
		}},
		"of a finally step, also once the spec does not say so any more": {sequence("build").Finally("notify").Finally("cleanup"), story{
			succeed("build"), fail("notify"), succeed("cleanup"),
			steps("build: Succeeded", "notify: Failed, BackoffLimitExceeded", "cleanup: Succeeded"),
			phase(v1alpha1.PhaseFailed, v1alpha1.ReasonFinallyFailed),
			edit(func(spec *v1alpha1.SequentialJobSpec) { spec.Containers = spec.Containers[:1] }),
			phase(v1alpha1.PhaseFailed, v1alpha1.ReasonFinallyFailed),
		}},
		"of a step and of a finally step": {sequence("test").Finally("notify").Finally("cleanup"), story{
			fail("test"), fail("notify"), succeed("cleanup"), phase(v1alpha1.PhaseFailed, v1alpha1.ReasonStepFailed),
			hasCondition(v1alpha1.ConditionFailed, "True "+text+`; finally step "notify" failed too: BackoffLimitExceeded`),
		}},
		"of a step whose options of the Job are not readable": {tolerated(), story{
			func(s *testEnv) { s.newestJob("lint").Annotations[v1alpha1.AnnotationStepOptions] = "nonsense" },
			fail("lint"), phase(v1alpha1.PhaseFailed, v1alpha1.ReasonStepFailed),
		}},
		"of a step whose Job is refused": {sequence("build", "test").Finally("cleanup"), story{
			refuse("test", decision.Invalid), succeed("build"), wait(0), created("build", "cleanup"),
			steps("build: Succeeded", "test: Failed, JobRejected", "cleanup: Starting"),
			func(s *testEnv) { assert.Equal(s.t, "message", "no", s.stepStatus("test").Message) },
		}},
		"of a step whose overlay became invalid": {sequence("build", "train"), story{
			edit(func(spec *v1alpha1.SequentialJobSpec) { overlay(`{"spec": 1}`)(&spec.Containers[1]) }),
			succeed("build"), steps("build: Succeeded", "train: Failed, JobRejected"), created("build"),
		}},
		"a tolerated one": {tolerated(), story{
			fail("lint"), isTolerated, succeed("build"), phase(v1alpha1.PhaseCompleted, v1alpha1.ReasonCompleted),
			steps("lint: Failed, BackoffLimitExceeded", "build: Succeeded"),
		}},
		"a tolerated one is retried first": {tolerated(retry(1, 10, 600)), story{
			fail("lint"), created("lint"), wait(10 * time.Second), fail("lint"), isTolerated, created("lint", "lint", "build"),
		}},
		"a tolerated loss": {tolerated(), story{wait(time.Minute), lose("lint"), isTolerated, created("lint", "build")}},
		"a tolerated start that is too late": {tolerated(testbuilder.StepStartDeadline(30)), story{
			func(s *testEnv) { testbuilder.Job(s.newestJob("lint")).PodPending(s.now) }, wait(time.Hour), removeJobs, isTolerated, created("lint", "build"),
		}},
		"a tolerated output that is invalid": {tolerated(testbuilder.RecordOutput()), story{
			exits("lint", 0, "\x00"), succeed("lint"), isTolerated, steps("lint: Failed, OutputInvalid", "build: Starting"),
		}},
	})
}

func TestFailureMessageComesFromTheStepsPod(t *testing.T) {
	otherContainer := testbuilder.Pod("fetch").Exited(1, "").Obj()
	otherContainer.Labels[v1alpha1.LabelStep] = "build"
	pod := func() *testbuilder.PodBuilder { return testbuilder.Pod("build") }
	for name, test := range map[string]struct {
		want string
		pods []corev1.Pod
	}{
		"without a Pod, the message comes from the Job": {"Job has reached the specified backoff limit", nil},
		"exit code and termination message":             {"container build exited with code 3: no such table", []corev1.Pod{pod().Exited(3, "no such table").Obj()}},
		"out of memory":                                 {"container build exited with code 137 (OOMKilled)", []corev1.Pod{pod().Killed("OOMKilled").Obj()}},
		"evicted":                                       {"Evicted: the node was low on memory", []corev1.Pod{pod().Evicted("the node was low on memory").Obj()}},
		"another container of the Pod failed":           {"container fetch exited with code 1", []corev1.Pod{otherContainer}},
		"several failed Pods: the newest one counts": {"container build exited with code 3", []corev1.Pod{
			pod().Created(time.Unix(1, 0)).Exited(1, "").Obj(), pod().Created(time.Unix(3, 0)).Exited(3, "").Obj(),
			pod().Created(time.Unix(2, 0)).Exited(2, "").Obj(), pod().Created(time.Unix(4, 0)).Running().Obj(),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := startRun(t, sequence("build"))
			s.pods[s.newestJob("build").UID] = test.pods
			s.failStep("build")
			assert.Equal(t, "message", test.want, s.stepStatus("build").Message)
		})
	}
}

func TestALostJobFailsItsStepUnlessTheSpecSaysOtherwise(t *testing.T) {
	runScenarios(t, map[string]scenario{
		"it fails when its Pods have ended": {sequence("build", "test").Finally("cleanup"), story{
			wait(time.Minute), func(s *testEnv) {
				s.pods[s.newestJob("build").UID], s.leavesPods = []corev1.Pod{testbuilder.Pod("build").Obj()}, true
			},
			lose("build"), wait(time.Hour), created("build"), func(s *testEnv) { s.leavesPods = false }, wait(replacementDelay),
			steps("build: Failed, JobLost", "test: Skipped, PreviousStepFailed", "cleanup: Starting"),
		}},
		"another attempt follows": {sequence("build", "test").RerunLostJobs(), story{
			wait(time.Minute), lose("build"), created("build", "build"), succeed("build", "test"), steps("build: Succeeded", "test: Succeeded"),
		}},
		"another attempt waits until the run is resumed": {sequence("build").RerunLostJobs(), story{
			suspendRun, lose("build"), steps("build: Lost, JobLost"), resumeRun, created("build", "build"),
		}},
		"a Job with another UID is not that of the step": {sequence("build", "test"), story{
			wait(time.Minute),
			func(s *testEnv) { testbuilder.Job(s.newestJob("build")).Created("another", s.now).Complete(s.now) },
			wait(0), steps("build: Failed, JobLost", "test: Skipped, PreviousStepFailed"),
		}},
		"also one that expired before a restarted operator read it": {sequence("build"), story{
			(*testEnv).restartOperator, func(s *testEnv) { s.expired = []*batchv1.Job{testbuilder.Job(s.jobs[0]).Complete(s.now).Obj()} },
			lose("build"), created("build"), steps("build: Failed, JobLost"),
		}},
		"it is not retried": {sequence().Step("build", retry(1, 10, 600)), story{lose("build"), steps("build: Failed, JobLost")}},
		"no attempt follows at a step that was removed": {sequence("build", "test").RerunLostJobs(), story{
			wait(time.Minute), edit(removeFirstStep), lose("build"), created("build"),
			steps("build: Failed, JobRejected", "test: Skipped, PreviousStepFailed"),
		}},
		"nor of a step that was removed before its Job was created": {sequence("lint", "build", "test"), story{
			refuse("build", decision.QuotaExceeded), succeed("lint"), edit(removeFirstStep), edit(removeFirstStep), created("lint"),
			steps("lint: Succeeded", "build: Failed, JobRejected", "test: Skipped, PreviousStepFailed"),
		}},
	})
}

func retry(limit, backoff, longest int32) testbuilder.StepOption {
	return testbuilder.WithStepOptions(func(o *v1alpha1.StepOptions) {
		o.Retry = &v1alpha1.StepRetry{Retry: v1alpha1.Retry{
			Limit: &limit, Backoff: duration(time.Duration(backoff) * time.Second), MaxBackoff: duration(time.Duration(longest) * time.Second),
		}}
	})
}

func duration(d time.Duration) *v1alpha1.Duration {
	return &v1alpha1.Duration{Duration: metav1.Duration{Duration: d}}
}

func TestRetriesEndAfterTheirMaxDuration(t *testing.T) {
	s := startRun(t, sequence().Step("build", retry(9, 10, 10), testbuilder.WithStepOptions(func(o *v1alpha1.StepOptions) {
		o.Retry.MaxDuration = duration(30 * time.Second)
	})))
	later := func(s *testEnv) { s.now = s.now.Add(5 * time.Second) }
	restart := func(s *testEnv) { s.restartOperator() }
	s.pass(story{ // they start after 0, 15 and 30 seconds; a restart changes nothing
		later, fail("build"), wait(10 * time.Second), steps("build: Starting, BackoffLimitExceeded"),
		later, fail("build"), restart, wait(10 * time.Second), steps("build: Starting, BackoffLimitExceeded"),
		later, fail("build"), steps("build: Failed, BackoffLimitExceeded"), created("build", "build", "build"),
	}...)
	s.pass(rerun(v1alpha1.RerunFromFailed), fail("build"))
	step := s.stepStatus("build")
	require.True(t, step.Phase == v1alpha1.StepRetrying && step.FirstStartTime.Time.Equal(s.now), "the duration continues: %+v", step)
}

func TestFailedStepIsTriedAgainAfterItsBackoff(t *testing.T) {
	const message = `attempt 1 of step "build" failed: ` + backoffLimitMessage + `; attempt 2 starts at 2026-01-01T12:00:10Z`
	failsAndWaits := func(want time.Duration) func(*testEnv) {
		return func(s *testEnv) {
			assert.Equal(s.t, "wait for the next decision", want, s.failStep("build").RequeueAfter)
		}
	}
	attempts := func(attempt, failed int32, reason string) func(*testEnv) {
		return func(s *testEnv) {
			step := s.stepStatus("build")
			isNext := (step.NextAttemptTime != nil) == (reason != "") && s.sj.Status.Reason == reason
			require.True(s.t, step.Attempt == attempt && step.FailedAttempts == failed && isNext, "%+v, reason %q", step, s.sj.Status.Reason)
		}
	}
	startRun(t, sequence().Step("build", retry(2, 10, 600)).Step("test")).pass(story{
		failsAndWaits(10 * time.Second), created("build"), steps("build: Retrying, BackoffLimitExceeded", "test: Pending"),
		phase(v1alpha1.PhaseRunning, v1alpha1.ReasonRetrying), hasCondition(v1alpha1.ConditionProgressing, "True Retrying: "+message),
		events(v1alpha1.EventJobStarted, v1alpha1.EventJobFailed), attempts(1, 1, v1alpha1.ReasonRetrying),
		wait(9 * time.Second), created("build"), wait(time.Second), created("build", "build"), attempts(2, 1, ""),
		failsAndWaits(20 * time.Second), wait(20 * time.Second), attempts(3, 2, ""), succeed("build"), created("build", "build", "build", "test"),
	}...)
}

func TestRetriesFollowTheRulesOfTheRun(t *testing.T) {
	build := func() *testbuilder.SequentialJobBuilder { return sequence().Step("build", retry(1, 10, 600)) }
	runScenarios(t, map[string]scenario{
		"the step fails after its last attempt": {build().Step("test").Finally("clean"), story{
			fail("build"), wait(10 * time.Second), fail("build"),
			steps("build: Failed, BackoffLimitExceeded", "test: Skipped, PreviousStepFailed", "clean: Starting"),
		}},
		"no attempt is awaited that the deadline of the run forbids, except at a finally step": {
			build().Finally("clean", retry(1, 60, 600)).ActiveDeadline(10), story{
				fail("build"), steps("build: Failed, BackoffLimitExceeded", "clean: Starting"),
				fail("clean"), steps("build: Failed, BackoffLimitExceeded", "clean: Retrying, BackoffLimitExceeded"),
			},
		},
		"none starts while the run is suspended": {build(), story{
			fail("build"), suspendRun, wait(time.Hour), phase(v1alpha1.PhaseSuspended, v1alpha1.ReasonSuspended), created("build"),
			resumeRun, created("build", "build"),
		}},
		"a deadline that becomes shorter ends the retry": {build().ActiveDeadline(60), story{
			fail("build"),
			edit(func(spec *v1alpha1.SequentialJobSpec) { spec.ActiveDeadlineSeconds = new(int64(5)) }),
			wait(20 * time.Second), steps("build: Failed, BackoffLimitExceeded"),
			hasCondition(v1alpha1.ConditionFailed, `True DeadlineExceeded: step "build" failed: `+backoffLimitMessage),
		}},
		"the step can be corrected before its next attempt": {build(), story{
			fail("build"),
			func(s *testEnv) {
				s.changeSpec(setImage("corrected"))
				errs := ImmutabilityViolations(nil, &s.sj.Spec, &s.sj.Status)
				require.True(s.t, len(errs) == 0, "the change is refused: %v", errs)
			},
			wait(10 * time.Second), created("build", "build"), runsImage("build", "corrected"),
		}},
	})
	isPending := func(s *testEnv) { testbuilder.Job(s.newestJob("build")).PodPending(s.now) }
	isTooLate := func() story { // also after a restart
		return story{(*testEnv).restartOperator, isPending, wait(30 * time.Second), steps("build: Stopping, StartDeadlineExceeded")}
	}
	late := testbuilder.SequentialJob("a", "ns").Step("build", retry(1, 10, 600), testbuilder.StepStartDeadline(30))
	runScenarios(t, map[string]scenario{
		"an attempt follows a Job that did not start in time":                {late, append(isTooLate(), removeJobs, steps("build: Retrying, StartDeadlineExceeded"))},
		"none follows a Job of which nobody saw whether it had ended before": {late, append(isTooLate(), (*testEnv).restartOperator, removeJobs, steps("build: Failed, JobLost"))},
	})
	for reason, want := range map[string]v1alpha1.StepPhase{
		batchv1.JobReasonBackoffLimitExceeded:     v1alpha1.StepRetrying,
		batchv1.JobReasonDeadlineExceeded:         v1alpha1.StepRetrying,
		batchv1.JobReasonFailedIndexes:            v1alpha1.StepRetrying,
		batchv1.JobReasonMaxFailedIndexesExceeded: v1alpha1.StepRetrying,
		batchv1.JobReasonPodFailurePolicy:         v1alpha1.StepFailed, // another attempt would repeat it
		"OfAnotherController":                     v1alpha1.StepFailed,
	} {
		s := startRun(t, build())
		testbuilder.Job(s.newestJob("build")).Failed(reason, "", s.now)
		s.reconcile()
		assert.Equal(t, "phase after "+reason, want, s.stepStatus("build").Phase)
	}
}

func TestRunThatExceedsItsDeadlineIsStoppedAndRunsFinally(t *testing.T) {
	s := startRun(t, sequence("build", "test").Finally("cleanup").ActiveDeadline(60))
	assert.Equal(t, "the next decision", 40*time.Second, s.reconcileAfter(20*time.Second).RequeueAfter)
	s.pass(wait(40*time.Second), steps("build: Stopping, DeadlineExceeded", "test: Pending", "cleanup: Pending"))
	got := s.sj.Status.DeadlineExceededTime
	require.True(t, got != nil && got.Time.Equal(s.now), "want the deadline recorded as exceeded at %s, got %s", s.now, got)
	s.pass(
		removeJobs, steps("build: Failed, DeadlineExceeded", "test: Skipped, PreviousStepFailed", "cleanup: Starting"), wait(time.Hour),
		succeed("cleanup"), phase(v1alpha1.PhaseFailed, v1alpha1.ReasonDeadlineExceeded), created("build", "cleanup"),
	)
}

func TestOnlyTheDeadlineOfTheRunFailsTheRun(t *testing.T) {
	runScenarios(t, map[string]scenario{
		"not a step that ends by itself while it is stopped": {sequence("build").ActiveDeadline(60), story{
			wait(time.Hour), succeed("build"), steps("build: Succeeded"), phase(v1alpha1.PhaseCompleted, v1alpha1.ReasonCompleted),
		}},
		"whatever failures are tolerated": {
			sequence().Step("build", testbuilder.ContinueOnFailure()).Step("test").ActiveDeadline(60), story{
				wait(time.Hour), removeJobs, created("build"), phase(v1alpha1.PhaseFailed, v1alpha1.ReasonDeadlineExceeded),
			},
		},
		"not that of a step": {sequence("build").ActiveDeadline(60), story{
			func(s *testEnv) {
				testbuilder.Job(s.newestJob("build")).Failed(batchv1.JobReasonDeadlineExceeded, "", s.now)
			},
			wait(0), steps("build: Failed, StepDeadlineExceeded"), phase(v1alpha1.PhaseFailed, v1alpha1.ReasonStepFailed),
		}},
		"while a quota delays a step": {sequence("build", "test").ActiveDeadline(60), story{
			refuse("test", decision.QuotaExceeded), succeed("build"), wait(time.Hour),
			steps("build: Succeeded", "test: Failed, DeadlineExceeded"), phase(v1alpha1.PhaseFailed, v1alpha1.ReasonDeadlineExceeded),
		}},
		"while a Policy delays a step": {sequence("build", "test").ActiveDeadline(60), story{
			func(s *testEnv) { s.policies = testbuilder.AllowImages("other:*") },
			succeed("build"), wait(time.Hour), steps("build: Succeeded", "test: Failed, DeadlineExceeded"),
		}},
	})
}

func withInitContainer(pod corev1.Pod, initContainer string, state corev1.ContainerState) corev1.Pod {
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: initContainer, State: state}}
	return pod
}

func TestStartDeadlineEndsAStepWhosePodCannotStart(t *testing.T) {
	pod := func() *testbuilder.PodBuilder { return testbuilder.Pod("build") }
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	initializing := withInitContainer(pod().Waiting("PodInitializing", "").Obj(), "prepare", running)
	sidecar := *initializing.DeepCopy()
	sidecar.Spec.InitContainers = []corev1.Container{{Name: "prepare", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}}
	for name, test := range map[string]struct {
		pod  corev1.Pod
		want string // after that it did not start
	}{
		"an image that cannot be pulled": {pod().Waiting("ImagePullBackOff", "Back-off").Obj(), ": ImagePullBackOff: Back-off"},
		"a Pod that fits no node":        {pod().Unschedulable("no node").Obj(), ": Unschedulable: no node"},
		"a native sidecar that runs, and an image that cannot be pulled": {
			withInitContainer(pod().Waiting("ErrImagePull", "not found").Obj(), "proxy", running), ": ErrImagePull: not found",
		},
		"an init container that ended, and a missing Secret": {
			withInitContainer(pod().Waiting("CreateContainerConfigError", "no Secret").Obj(), "prepare",
				corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}),
			": CreateContainerConfigError: no Secret",
		},
		"an init container that does not end":            {initializing, ": init container prepare has not ended"},
		"a native sidecar that does not start":           {sidecar, ": sidecar prepare has not started"},
		"a Pod that failed before its container started": {withInitContainer(pod().Evicted("low on memory").Obj(), "prepare", running), ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := startRun(t, sequence().Step("build", testbuilder.StepStartDeadline(30)).Finally("cleanup"))
			testbuilder.Job(s.newestJob("build")).PodPending(s.now)
			s.pods[s.newestJob("build").UID] = []corev1.Pod{test.pod}
			if decision.HasPodEnded(&test.pod) {
				s.newestJob("build").Status.Failed = 1
			}
			assert.Equal(t, "wait for the next decision", 10*time.Second, s.reconcileAfter(20*time.Second).RequeueAfter)
			s.pass(wait(10*time.Second), removeJobs, steps("build: Failed, StartDeadlineExceeded", "cleanup: Starting"))
			assert.Equal(t, "message", "container build did not start within 30 s"+test.want, s.stepStatus("build").Message)
		})
	}
}

func TestStartDeadlineDoesNotApplyOnceAPodStarted(t *testing.T) {
	withPods := func(s *testEnv, failed int32, pods ...corev1.Pod) {
		job := testbuilder.Job(s.newestJob("build")).PodPending(s.now).Obj()
		job.Status.Failed, s.pods[job.UID] = failed, pods
	}
	for title, happens := range map[string]func(*testEnv){
		"the Job counts a ready Pod":  func(s *testEnv) { testbuilder.Job(s.newestJob("build")).Active(s.now) },
		"a Pod runs but is not ready": func(s *testEnv) { withPods(s, 0, testbuilder.Pod("build").Running().Obj()) },
		"the Pod that ran is being deleted": func(s *testEnv) {
			withPods(s, 0)
			s.addPod("build", testbuilder.Pod("build").Running()).DeletionTimestamp = new(metav1.NewTime(s.now))
		},
		"the container failed, and its next Pod cannot start": func(s *testEnv) {
			withPods(s, 1, testbuilder.Pod("build").Exited(1, "").Obj(), testbuilder.Pod("build").Unschedulable("").Obj())
		},
		"the container waits after a failure to be restarted": func(s *testEnv) {
			pod := testbuilder.Pod("build").Waiting("CrashLoopBackOff", "").Obj()
			pod.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1}
			withPods(s, 0, pod)
		},
	} {
		t.Run(title, func(t *testing.T) {
			s := startRun(t, sequence().Step("build", testbuilder.StepStartDeadline(30)))
			s.pass(happens, wait(time.Hour), steps("build: Starting"))
		})
	}
}

// The API server refuses longer ones.
func TestTheLongestDeadlinesDoNotPass(t *testing.T) {
	const longest = math.MaxInt32
	s := startRun(t, sequence().Step("build", testbuilder.StepStartDeadline(longest)).ActiveDeadline(longest).TTLAfterFinished(longest))
	testbuilder.Job(s.newestJob("build")).PodPending(s.now)
	s.pods[s.newestJob("build").UID] = []corev1.Pod{testbuilder.Pod("build").Waiting("ErrImagePull", "").Obj()}
	got := s.reconcileAfter(365 * 24 * time.Hour)
	require.True(t, got.RequeueAfter >= 0, "the next decision is due in %s", got.RequeueAfter)
	s.pass(steps("build: Starting"), succeed("build"), isExpired(false))
}

func TestFinishedSequentialJobExpires(t *testing.T) {
	for _, end := range []func(*testEnv){succeed("build"), fail("build")} {
		s := startRun(t, sequence("build").TTLAfterFinished(100)).pass(wait(time.Hour), isExpired(false), end)
		decision := s.reconcileAfter(40 * time.Second)
		require.True(t, !decision.DeleteExpired && decision.RequeueAfter == time.Minute, "want a reconciliation in a minute, got %+v", decision)
		s.pass(wait(time.Minute), isExpired(true))
	}
}
