package sequentialjob

import (
	"strings"
	"testing"
	"time"

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

// waiting lets the Pod of build wait.
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
			require.True(t, step.Message == message && s.sj.Status.Reason == reason,
				"message %q and reason %q, want %q and %q", step.Message, s.sj.Status.Reason, message, reason)
			s.pass(events(v1alpha1.EventBlocked))
			if wait := s.reconcileAfter(time.Minute).RequeueAfter; wait == 0 || wait > maxBlockedRetry {
				t.Errorf("the next decision is after %s, want at most %s", wait, maxBlockedRetry)
			}
			s.pass(events())

			if job := s.newestJob("build"); isSuspended(job) {
				job.Spec.Suspend = new(false)
			}
			s.startPod("build")
			s.pass(wait(time.Second), steps("build: Running"), hasCondition(v1alpha1.ConditionBlocked, "False NotBlocked: "))
			if step := s.stepStatus("build"); step.Message != "" || s.sj.Status.Reason != "" {
				t.Errorf("message %q and reason %q of a running step", step.Message, s.sj.Status.Reason)
			}
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
	runScenarios(t, map[string]scenario{
		"while the kubelet alternates between the cause and its back-off": {sequence("build"), story{
			waiting("ErrImagePull", "not found"), wait(time.Second), waiting("ImagePullBackOff", "Back-off pulling image"), wait(time.Second),
			hasCondition(v1alpha1.ConditionBlocked, `True ImagePull: step "build": Pod pod, container build: ErrImagePull: not found; `+
				"check the image's name, the pull Secret and the registry"),
			func(s *testEnv) {
				if pod := s.unfinishedPods[0]; IsRelevantPodUpdate(pod, pod) {
					s.t.Error("an update without a change is relevant")
				}
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
	if decision := s.reconcileAfter(900 * time.Millisecond); decision.StatusChanged || decision.RequeueAfter > 100*time.Millisecond {
		t.Errorf("the status changes: %t; the next decision is after %s, want at most 100ms", decision.StatusChanged, decision.RequeueAfter)
	}
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
		if question := Decide(in).Question; (question != nil) != want {
			t.Errorf("after %s it asks %+v, want a question: %t", age, question, want)
		}
	}
}
