package sequentialjob

import (
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// addPod adds a Pod of the step's newest Job to the cache, in place of the earlier ones.
func (s *testEnv) addPod(step string, builder *testbuilder.PodBuilder) *corev1.Pod {
	pod := builder.Created(s.now).Obj()
	pod.Name, pod.UID = "pod", "pod"
	pod.OwnerReferences = []metav1.OwnerReference{{UID: s.newestJob(step).UID, Controller: new(true)}}
	s.unfinishedPods = []*corev1.Pod{&pod}
	return &pod
}

// runPod starts the containers of a Pod, and reconciles when the step is reported as running.
func (s *testEnv) runPod(step string) {
	s.startPod(step)
	s.reconcileAfter(2 * startReportDelay)
}

func (s *testEnv) startPod(step string) {
	pod := s.addPod(step, testbuilder.Pod(step).Running())
	pod.Status.ContainerStatuses[0].State.Running.StartedAt = metav1.NewTime(s.now)
}

func waiting(reason, message string) func(*testEnv) {
	return func(s *testEnv) { s.addPod("build", testbuilder.Pod("build").Waiting(reason, message)) }
}

func TestReasonWhyAPodDoesNotRunIsInTheMessageOfItsStep(t *testing.T) {
	noNode := func(s *testEnv) { s.addPod("build", testbuilder.Pod("build").Unschedulable("no node")) }
	for name, test := range map[string]struct {
		happens               func(s *testEnv)
		wantStep, wantMessage string
	}{
		"an image that cannot be pulled": {waiting("ErrImagePull", "no"), "build: Starting, ImagePull", "Pod pod, container build: ErrImagePull: no"},
		"a missing Secret":               {waiting("CreateContainerConfigError", "no"), "build: Starting, ConfigError", "Pod pod, container build: CreateContainerConfigError: no"},
		"an init container that fails again and again": {
			func(s *testEnv) {
				waits := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 10s"}}
				s.addPod("build", testbuilder.Pod("build")).Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "init", State: waits}}
			},
			"build: Starting, CrashLoop", "Pod pod, container init: CrashLoopBackOff: back-off 10s",
		},
		"no node that fits": {noNode, "build: Starting, Unschedulable", "Pod pod: Unschedulable: no node"},
		"a volume that only an event names": {
			func(s *testEnv) {
				notReady := corev1.PodCondition{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionFalse}
				s.addPod("build", testbuilder.Pod("build").Waiting("ContainerCreating", "")).Status.Conditions = []corev1.PodCondition{notReady}
				s.warnings["pod"] = "MountVolume.SetUp failed"
			},
			"build: Starting, ConfigError", "Pod pod cannot be prepared by its node: MountVolume.SetUp failed",
		},
		"a Pod that cannot be created": {
			func(s *testEnv) {
				s.newestJob("build").Status.Active = 0
				s.warnings[s.newestJob("build").UID] = `Error creating: pods "a" is forbidden: exceeded quota`
			},
			"build: Starting, PodNotCreated", `Job JOB cannot create its Pod: Error creating: pods "a" is forbidden: exceeded quota`,
		},
		"a queue": {
			func(s *testEnv) {
				s.newestJob("build").Labels[queueLabel] = "q"
				testbuilder.Job(s.newestJob("build")).Suspended(s.now)
			},
			"build: Queued, Queued", "Job JOB waits in queue q",
		},
		"a Job that another client suspended": {
			func(s *testEnv) { testbuilder.Job(s.newestJob("build")).Suspended(s.now) },
			"build: Suspended, JobSuspended", "another client suspended Job JOB",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := startRun(t, sequence("build"))
			test.happens(s)
			s.events = nil
			s.pass(wait(eventsDelay), steps(test.wantStep))
			_, reason, _ := strings.Cut(test.wantStep, ", ")
			message := strings.ReplaceAll(test.wantMessage, "JOB", s.newestJob("build").Name)
			step := s.stepStatus("build")
			require.True(t, step.Message == message && s.sj.Status.Reason == reason, "message %q, reason %q", step.Message, s.sj.Status.Reason)
			s.pass(events(v1alpha1.EventBlocked))
			next := s.reconcileAfter(time.Minute).RequeueAfter
			require.True(t, next != 0 && next <= maxBlockedRetry, "the next decision is after %s, want at most %s", next, maxBlockedRetry)
			s.pass(events())
			if job := s.newestJob("build"); isSuspended(job) {
				job.Spec.Suspend = new(false)
			}
			s.startPod("build")
			_, delay := NewsOf(nil, s.unfinishedPods[0]) // without a pass over the Pod before
			s.pass(wait(delay), steps("build: Running"), hasCondition(v1alpha1.ConditionBlocked, "False NotBlocked: "))
			step = s.stepStatus("build")
			require.True(t, step.Message == "" && s.sj.Status.Reason == "", "message %q and reason %q of a running step", step.Message, s.sj.Status.Reason)
		})
	}
}

func TestReportedCauseIsKept(t *testing.T) {
	hasNoPod := func(s *testEnv) {
		job := testbuilder.Job(s.newestJob("build")).PodPending(s.now).Obj()
		job.Status.Active, s.warnings[job.UID] = 0, "exceeded quota"
	}
	forget := func(s *testEnv) { clear(s.warnings) }
	message := func(want string) func(*testEnv) {
		return func(s *testEnv) {
			assert.Equal(s.t, "message", strings.ReplaceAll(want, "JOB", s.newestJob("build").Name), s.stepStatus("build").Message)
		}
	}
	failure := func(s *testEnv) *corev1.ContainerStateTerminated {
		return &corev1.ContainerStateTerminated{ExitCode: 3, StartedAt: metav1.NewTime(s.now.Add(-18 * time.Second)), FinishedAt: metav1.NewTime(s.now.Add(-10 * time.Second))}
	}
	restarts := func(s *testEnv) {
		s.startPod("build")
		s.unfinishedPods[0].Status.ContainerStatuses[0].LastTerminationState.Terminated = failure(s)
	}
	fails := func(s *testEnv) {
		s.addPod("build", testbuilder.Pod("build")).Status.ContainerStatuses[0].State.Terminated = failure(s)
	}
	crashes := waiting("CrashLoopBackOff", "back-off")
	runScenarios(t, map[string]scenario{
		"until a container that fails again and again has run for twice as long as before": {sequence("build"), story{
			crashes, wait(time.Second), forgetEvents, restarts, wait(9 * time.Second), fails, wait(time.Second), crashes, wait(time.Second),
			restarts, wait(15 * time.Second), steps("build: Starting, CrashLoop"), message("Pod pod, container build: CrashLoopBackOff: back-off"), events(),
			wait(time.Second), steps("build: Running"), hasCondition(v1alpha1.ConditionBlocked, "False NotBlocked: "),
		}},
		"while the kubelet alternates between the cause and its back-off": {sequence("build"), story{
			waiting("ErrImagePull", "not found"), wait(time.Second), waiting("ImagePullBackOff", "Back-off pulling image"), wait(time.Second),
			hasCondition(v1alpha1.ConditionBlocked, `True ImagePull: step "build": Pod pod, container build: ErrImagePull: not found; `+
				"check the image's name, the pull Secret and the registry"),
			func(s *testEnv) {
				pod := s.unfinishedPods[0]
				isRelevant, _ := NewsOf(pod, pod) // an update without a change
				require.Equal(s.t, false, isRelevant)
			},
		}},
		"without the event that named it, which expires after an hour": {sequence("build"), story{
			hasNoPod, wait(eventsDelay), forget, wait(2 * time.Hour), steps("build: Starting, PodNotCreated"),
			message("Job JOB cannot create its Pod: exceeded quota"),
		}},
		"and none is reported that no event names": {sequence("build"), story{hasNoPod, forget, wait(2 * eventsDelay), steps("build: Starting")}},
		"in the outcome of the step": {sequence().Step("build", testbuilder.StepStartDeadline(30)), story{
			hasNoPod, wait(eventsDelay), wait(30 * time.Second), steps("build: Stopping, StartDeadlineExceeded"),
			message("container build did not start within 30 s: Job JOB cannot create its Pod: exceeded quota"),
		}},
	})
}

// Each write costs more than all requests of a step that runs for a moment.
func TestStepThatEndsWithinASecondIsNotRecordedAsRunning(t *testing.T) {
	s := startRun(t, sequence("build"))
	s.startPod("build")
	decision := s.reconcileAfter(900 * time.Millisecond)
	require.True(t, !decision.StatusChanged && decision.RequeueAfter <= 100*time.Millisecond, "decision %+v", decision)
	s.pass(wait(100*time.Millisecond), steps("build: Running"))
	s.unfinishedPods = nil // it ended
	require.True(t, !s.reconcileAfter(time.Second).StatusChanged, "the status changes again before the Job has ended")
}

func TestOnlyAContainerOfTheStepMakesItRunning(t *testing.T) {
	sidecar := corev1.ContainerStatus{Name: "sidecar", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	runScenarios(t, map[string]scenario{
		"not the container of an earlier Pod": {sequence("build"), story{
			func(s *testEnv) { s.startPod("build") }, wait(time.Second), steps("build: Running"),
			waiting("ImagePullBackOff", "no"), wait(time.Second), steps("build: Starting, ImagePull"),
		}},
		"not a sidecar": {sequence("build"), story{
			waiting("ImagePullBackOff", "no"),
			func(s *testEnv) {
				s.unfinishedPods[0].Status.ContainerStatuses = append(s.unfinishedPods[0].Status.ContainerStatuses, sidecar)
			},
			wait(time.Hour), steps("build: Starting, ImagePull"),
		}},
	})
}

func TestEventsAreReadOnlyForStepsThatWaitLonger(t *testing.T) {
	s := startRun(t, sequence("build"))
	s.newestJob("build").Status.Active = 0
	in := Observation{SequentialJob: s.sj, Jobs: s.jobs, CreatedJobs: s.createdUIDs, HasStored: s.hasStored}
	for age, want := range map[time.Duration]bool{time.Second: false, eventsDelay - 1: false, eventsDelay: true, time.Hour: true} {
		in.Now = s.now.Add(age)
		question := Decide(in).Question
		require.True(t, (question != nil) == want, "after %s it asks %+v, want a question: %t", age, question, want)
	}
}

// An ender ends a Pod in which only the container of a mesh still runs.
type ender string

const (
	nobody         ender = "nobody"
	option         ender = "endWithStep"
	deadlineOfStep ender = "the deadline of the step"
	deadlineOfRun  ender = "the deadline of the run"
)

// outcomeWithLeftover is the rule: the outcome of a step with one Pod is that of its own container, whatever ends its Pod. Of a
// step with several Pods, others may not have run.
func outcomeWithLeftover(by ender, exitCode, pods int32, policy corev1.RestartPolicy) []string {
	succeeded, failed := "build: Succeeded", "build: Failed, BackoffLimitExceeded"
	isRestarted := exitCode != 0 && policy == corev1.RestartPolicyOnFailure
	switch {
	case by == deadlineOfStep && exitCode == 0 && pods == 1:
		return []string{succeeded, "test: Starting"}
	case by == deadlineOfStep:
		return []string{"build: Failed, StepDeadlineExceeded", "test: Skipped, PreviousStepFailed"}
	case by == deadlineOfRun && (pods > 1 || isRestarted):
		return []string{"build: Failed, DeadlineExceeded", "test: Skipped, PreviousStepFailed"}
	case isRestarted:
		return []string{"build: Running", "test: Pending"}
	case by == nobody || by == option && pods > 1:
		return []string{"build: Running, ContainerStillRuns", "test: Pending"}
	case exitCode != 0:
		return []string{failed, "test: Skipped, PreviousStepFailed"}
	case by == deadlineOfRun:
		return []string{succeeded, "test: Skipped, DeadlineExceeded"}
	default:
		return []string{succeeded, "test: Starting"}
	}
}

func TestTheOutcomeOfAStepIsThatOfItsOwnContainer(t *testing.T) {
	for _, by := range []ender{nobody, option, deadlineOfStep, deadlineOfRun} {
		for _, exitCode := range []int32{0, 3} {
			for _, pods := range []int32{1, 2} {
				for _, policy := range []corev1.RestartPolicy{corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure} {
					title := fmt.Sprintf("the container of a Pod of %d with restartPolicy %s exits with %d, and %s ends the rest", pods, policy, exitCode, by)
					t.Run(title, func(t *testing.T) { checkLeftover(t, by, exitCode, pods, policy) })
				}
			}
		}
	}
}

func checkLeftover(t *testing.T, by ender, exitCode, pods int32, policy corev1.RestartPolicy) {
	builder := sequence().Template(corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: policy}}).ActiveDeadline(60).
		Step("build", testbuilder.WithStepOptions(func(o *v1alpha1.StepOptions) { o.Outputs, o.Completions = pods == 1, &pods })).Step("test")
	s := startRun(t, builder)
	job := s.newestJob("build")
	s.now = s.now.Add(30 * time.Second)
	pod := leftoverPod(job, exitCode, s.now)
	s.unfinishedPods = []*corev1.Pod{&pod}
	s.pods[job.UID] = nil                                     // deleted with the Job
	s.pass(wait(0), steps("build: Running", "test: Pending")) // most containers of others end soon
	if by == option {
		s.changeSpec(func(spec *v1alpha1.SequentialJobSpec) { spec.Template.EndWithStep = true })
	}
	s.reconcileAfter(leftoverDelay)
	want := outcomeWithLeftover(by, exitCode, pods, policy)
	if by == nobody && want[0] == "build: Running, ContainerStillRuns" {
		message := fmt.Sprintf("container build exited with %d; container mesh-proxy still runs", exitCode)
		s.pass(hasCondition(v1alpha1.ConditionBlocked,
			`True ContainerStillRuns: step "build": `+message+"; end it, make it a native sidecar, or set spec.template.endWithStep"))
		if got := s.sj.Status; got.Phase != v1alpha1.PhaseRunning || got.Reason != v1alpha1.ReasonContainerStillRuns || got.Steps[0].Message != message {
			t.Errorf("phase %s, reason %s, message %q", got.Phase, got.Reason, got.Steps[0].Message)
		}
	}
	s.restartOperator()
	s.evidence.change(job.UID, func(e *Evidence) { e.Observe(&pod) })
	switch by {
	case deadlineOfStep:
		testbuilder.Job(job).Failed(batchv1.JobReasonDeadlineExceeded, "Job was active longer than specified deadline", s.now)
	case deadlineOfRun:
		s.reconcileAfter(time.Minute)
	}
	if job.DeletionTimestamp != nil {
		s.reconcile()
		require.True(t, s.stepStatus("build").Phase == v1alpha1.StepStopping && s.stepStatus("test").Phase == v1alpha1.StepPending, "%+v", s.sj.Status)
		s.unfinishedPods = nil
	}
	s.pass(removeJobs, steps(want...))
	step := s.stepStatus("build")
	require.True(t, step.Phase != v1alpha1.StepSucceeded || step.Output == "v1", "output %q, want v1", step.Output)
	hasOutcome := step.ExitCode != nil && *step.ExitCode == exitCode && step.Message == "container build exited with code 3: v1"
	require.True(t, step.Reason != batchv1.JobReasonBackoffLimitExceeded || hasOutcome, "%+v", step)
}

// leftoverPod returns a Pod of a Job whose container has ended and to which a mesh added another container.
func leftoverPod(job *batchv1.Job, exitCode int32, at time.Time) corev1.Pod {
	pod := testbuilder.Pod("build").Created(at).Exited(exitCode, "v1").Obj()
	pod.UID, pod.OwnerReferences = "pod", []metav1.OwnerReference{{UID: job.UID, Controller: new(true)}}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
		Name: "mesh-proxy", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(at.Add(-time.Minute))}},
	})
	return pod
}

func TestAnotherPodClearsTheReportOfAContainerThatStillRuns(t *testing.T) {
	s := startRun(t, sequence("build"))
	pod, before := leftoverPod(s.newestJob("build"), 0, s.now), leftoverPod(s.newestJob("build"), 0, s.now)
	s.unfinishedPods = []*corev1.Pod{&pod}
	s.pass(wait(leftoverDelay), steps("build: Running, ContainerStillRuns"))
	pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(s.now)}}
	isRelevant, delay := NewsOf(&before, &pod)
	require.True(t, isRelevant && delay == 0, "the operator does not notice at once that the container runs")
	s.pass(wait(startReportDelay), steps("build: Running"), hasCondition(v1alpha1.ConditionBlocked, "False NotBlocked: "))
}
