package sequentialjob

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// addPod adds a Pod of the step's newest Job to the cache, in place of the earlier ones.
func (s *testEnv) addPod(step string, builder *testbuilder.PodBuilder) *corev1.Pod {
	s.t.Helper()
	pod := builder.Created(s.now).Obj()
	pod.Name, pod.UID = "pod", "pod"
	pod.OwnerReferences = []metav1.OwnerReference{{UID: s.newestJob(step).UID, Controller: new(true)}}
	s.unfinishedPods = []*corev1.Pod{&pod}
	return &pod
}

// runPod starts the containers of a Pod, and reconciles when the step is reported as running.
func (s *testEnv) runPod(step string) {
	s.t.Helper()
	s.startPod(step)
	s.reconcileAfter(2 * startReportDelay)
}

// startPod starts the containers of a Pod.
func (s *testEnv) startPod(step string) {
	s.t.Helper()
	pod := s.addPod(step, testbuilder.Pod(step).Running())
	pod.Status.ContainerStatuses[0].State.Running.StartedAt = metav1.NewTime(s.now)
}

func TestReasonWhyAPodDoesNotRunIsInTheMessageOfItsStep(t *testing.T) {
	waiting := func(reason, message string) func(*testEnv) {
		return func(s *testEnv) { s.addPod("build", testbuilder.Pod("build").Waiting(reason, message)) }
	}
	for name, test := range map[string]struct {
		happens               func(s *testEnv)
		wantStep, wantMessage string
	}{
		"an image that cannot be pulled": {
			waiting("ErrImagePull", "not found"), "build: Starting, ImagePull", "Pod pod, container build: ErrImagePull: not found",
		},
		"a Secret that does not exist": {
			waiting("CreateContainerConfigError", `secret "key" not found`),
			"build: Starting, ConfigError", `Pod pod, container build: CreateContainerConfigError: secret "key" not found`,
		},
		"an init container that fails again and again": {
			func(s *testEnv) {
				pod := s.addPod("build", testbuilder.Pod("build"))
				waits := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 10s"}}
				*pod = withInitContainer(*pod, "init", waits)
			},
			"build: Starting, CrashLoop", "Pod pod, container init: CrashLoopBackOff: back-off 10s",
		},
		"no node that fits": {
			func(s *testEnv) { s.addPod("build", testbuilder.Pod("build").Unschedulable("0/3 nodes are available")) },
			"build: Starting, Unschedulable", "Pod pod: Unschedulable: 0/3 nodes are available",
		},
		"a volume that only an event names": {
			func(s *testEnv) {
				s.addPod("build", testbuilder.Pod("build").Waiting("ContainerCreating", "")).Status.Conditions = []corev1.PodCondition{
					{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionFalse},
				}
				s.warnings["pod"] = `MountVolume.SetUp failed: secret "key" not found`
			},
			"build: Starting, ConfigError", `Pod pod cannot be prepared by its node: MountVolume.SetUp failed: secret "key" not found`,
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
			if step.Message != message || s.sj.Status.Reason != reason {
				t.Errorf("message %q and reason %q, want %q and %q", step.Message, s.sj.Status.Reason, message, reason)
			}
			s.wantEvents(v1alpha1.EventBlocked)
			if wait := s.reconcileAfter(time.Minute).RequeueAfter; wait == 0 || wait > maxBlockedRetry {
				t.Errorf("the next decision is after %s, want at most %s", wait, maxBlockedRetry)
			}
			s.wantEvents()

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
	waiting := func(reason, message string) func(*testEnv) {
		return func(s *testEnv) { s.addPod("build", testbuilder.Pod("build").Waiting(reason, message)) }
	}
	hasNoPod := func(s *testEnv) {
		job := testbuilder.Job(s.newestJob("build")).PodPending(s.now).Obj()
		job.Status.Active, s.warnings[job.UID] = 0, "exceeded quota"
	}
	forget := func(s *testEnv) { clear(s.warnings) }
	message := func(want string) func(*testEnv) {
		return func(s *testEnv) {
			if got := s.stepStatus("build").Message; got != strings.ReplaceAll(want, "JOB", s.newestJob("build").Name) {
				s.t.Errorf("message %q, want %q", got, want)
			}
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
		"and none is reported that no event names": {sequence("build"), story{
			hasNoPod, forget, wait(2 * eventsDelay), steps("build: Starting"),
		}},
		"in the outcome of the step": {testbuilder.SequentialJob("a", "ns").Step("build", testbuilder.StepStartDeadline(30)), story{
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
	if decision := s.reconcileAfter(100 * time.Millisecond); !decision.StatusChanged {
		t.Error("the step that runs for a second is not recorded")
	}
	s.wantSteps("build: Running")
	s.unfinishedPods = nil // it ended
	if decision := s.reconcileAfter(time.Second); decision.StatusChanged {
		t.Error("the status changes again before the Job has ended")
	}
}

func TestOnlyAContainerOfTheStepMakesItRunning(t *testing.T) {
	runScenarios(t, map[string]scenario{
		"not the container of an earlier Pod": {sequence("build"), story{
			func(s *testEnv) { s.startPod("build") }, wait(time.Second), steps("build: Running"),
			func(s *testEnv) { s.addPod("build", testbuilder.Pod("build").Unschedulable("no node")) },
			wait(time.Second), steps("build: Starting, Unschedulable"),
		}},
		"not a sidecar": {sequence("build"), story{
			func(s *testEnv) {
				pod := s.addPod("build", testbuilder.Pod("build").Waiting("ImagePullBackOff", "no"))
				pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
					Name: "sidecar", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(s.now)}},
				})
			},
			wait(time.Hour), steps("build: Starting, ImagePull"),
		}},
	})
}

func TestEventsAreReadOnlyForStepsThatWaitLonger(t *testing.T) {
	s := startRun(t, sequence("build"))
	s.newestJob("build").Status.Active = 0
	in := Observation{SequentialJob: s.sj, Jobs: s.jobs, CreatedJobs: s.createdUIDs}
	for age, want := range map[time.Duration]bool{time.Second: false, eventsDelay - 1: false, eventsDelay: true, time.Hour: true} {
		in.Now = s.now.Add(age)
		if question := Decide(in).Question; (question != nil) != want {
			t.Errorf("after %s it asks %+v, want a question: %t", age, question, want)
		}
	}
}
