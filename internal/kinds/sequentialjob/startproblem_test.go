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

func preparing(pod *corev1.Pod) {
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionFalse}}
}

func TestReasonWhyAPodDoesNotRunIsInTheMessageOfItsStep(t *testing.T) {
	tests := map[string]struct {
		happens              func(s *testEnv)
		wantStep, wantReason string
		wantMessage          string
	}{
		"an image that cannot be pulled": {
			happens: func(s *testEnv) {
				s.addPod("build", testbuilder.Pod("build").Waiting("ErrImagePull", "not found"))
			},
			wantStep: "build: Starting, ImagePull", wantMessage: "Pod pod, container build: ErrImagePull: not found",
		},
		"a Secret that does not exist": {
			happens: func(s *testEnv) {
				s.addPod("build", testbuilder.Pod("build").Waiting("CreateContainerConfigError", `secret "key" not found`))
			},
			wantStep: "build: Starting, ConfigError", wantMessage: `Pod pod, container build: CreateContainerConfigError: secret "key" not found`,
		},
		"an init container that fails again and again": {
			happens: func(s *testEnv) {
				pod := s.addPod("build", testbuilder.Pod("build"))
				pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "init", State: corev1.ContainerState{
					Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 10s"},
				}}}
			},
			wantStep: "build: Starting, CrashLoop", wantMessage: "Pod pod, container init: CrashLoopBackOff: back-off 10s",
		},
		"no node that fits": {
			happens:  func(s *testEnv) { s.addPod("build", testbuilder.Pod("build").Unschedulable("0/3 nodes are available")) },
			wantStep: "build: Starting, Unschedulable", wantMessage: "Pod pod: Unschedulable: 0/3 nodes are available",
		},
		"a volume that only an event names": {
			happens: func(s *testEnv) {
				preparing(s.addPod("build", testbuilder.Pod("build").Waiting("ContainerCreating", "")))
				s.warnings["pod"] = `MountVolume.SetUp failed: secret "key" not found`
			},
			wantStep:    "build: Starting, ConfigError",
			wantMessage: `Pod pod cannot be prepared by its node: MountVolume.SetUp failed: secret "key" not found`,
		},
		"a Pod that cannot be created": {
			happens: func(s *testEnv) {
				s.newestJob("build").Status.Active = 0
				s.warnings[s.newestJob("build").UID] = `Error creating: pods "a" is forbidden: exceeded quota`
			},
			wantStep:    "build: Starting, PodNotCreated",
			wantMessage: `Job JOB cannot create its Pod: Error creating: pods "a" is forbidden: exceeded quota`,
		},
		"a queue": {
			happens: func(s *testEnv) {
				s.newestJob("build").Labels[queueLabel] = "q"
				testbuilder.Job(s.newestJob("build")).Suspended(s.now)
			},
			wantStep: "build: Queued, Queued", wantMessage: "Job JOB waits in queue q",
		},
		"a Job that another client suspended": {
			happens:  func(s *testEnv) { testbuilder.Job(s.newestJob("build")).Suspended(s.now) },
			wantStep: "build: Suspended, JobSuspended", wantMessage: "another client suspended Job JOB",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build"))
			test.happens(s)
			s.events = nil
			s.reconcileAfter(eventsDelay)
			s.wantSteps(test.wantStep)
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
			s.reconcileAfter(time.Second)
			s.wantSteps("build: Running")
			s.wantCondition(v1alpha1.ConditionBlocked, "False NotBlocked: ")
			if step := s.stepStatus("build"); step.Message != "" || s.sj.Status.Reason != "" {
				t.Errorf("message %q and reason %q of a running step", step.Message, s.sj.Status.Reason)
			}
		})
	}
}

func TestBlockedConditionSaysWhatToDo(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build"))
	s.addPod("build", testbuilder.Pod("build").Waiting("ErrImagePull", "not found"))
	s.reconcileAfter(time.Second)
	s.wantCondition(v1alpha1.ConditionBlocked,
		`True ImagePull: step "build": Pod pod, container build: ErrImagePull: not found; check the image's name, the pull Secret and the registry`)
}

// The kubelet alternates between the cause and its back-off.
func TestMessageOfAnImageKeepsItsCause(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build"))
	s.addPod("build", testbuilder.Pod("build").Waiting("ErrImagePull", "not found"))
	s.reconcileAfter(time.Second)
	s.addPod("build", testbuilder.Pod("build").Waiting("ImagePullBackOff", "Back-off pulling image"))
	if decision := s.reconcileAfter(time.Second); decision.StatusChanged {
		t.Errorf("the message changes to %q", s.stepStatus("build").Message)
	}
	if pod := s.unfinishedPods[0]; IsRelevantPodUpdate(pod, pod) {
		t.Error("an update without a change is relevant")
	}
}

func TestRefusalOfAJobIsInTheMessageOfItsStepAndHasOneEvent(t *testing.T) {
	s := newTestEnv(t, testbuilder.SequentialJob("a", "ns").Step("build").Obj())
	s.policies = testbuilder.AllowImages("good:*")
	s.reconcile()
	s.wantCondition(v1alpha1.ConditionBlocked, "True ImageNotAllowed: "+conditionMessage(&s.sj.Status, v1alpha1.ConditionStalled))
	s.wantEvents(v1alpha1.EventPolicyViolated)
	if s.sj.Status.Reason != v1alpha1.ReasonImageNotAllowed {
		t.Errorf("reason %q, want %q", s.sj.Status.Reason, v1alpha1.ReasonImageNotAllowed)
	}
}

// Each write costs more than all requests of a step that runs for a moment.
func TestStepThatEndsWithinASecondIsNotRecordedAsRunning(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build"))
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

func TestRetryThatCannotStartIsNotRunning(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build"))
	s.startPod("build")
	s.reconcileAfter(time.Second)
	s.wantSteps("build: Running")
	s.addPod("build", testbuilder.Pod("build").Unschedulable("no node"))
	s.reconcileAfter(time.Second)
	s.wantSteps("build: Starting, Unschedulable")
}

func TestSidecarDoesNotMakeAStepRunning(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build"))
	pod := s.addPod("build", testbuilder.Pod("build").Waiting("ImagePullBackOff", "no"))
	pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
		Name: "sidecar", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(s.now)}},
	})
	s.reconcileAfter(time.Hour)
	s.wantSteps("build: Starting, ImagePull")
}

func TestEventsAreReadOnlyForStepsThatWaitLonger(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build"))
	s.newestJob("build").Status.Active = 0
	in := Observation{SequentialJob: s.sj, Jobs: s.jobs, CreatedJobs: s.createdUIDs}
	for age, want := range map[time.Duration]bool{time.Second: false, eventsDelay - 1: false, eventsDelay: true, time.Hour: true} {
		in.Now = s.now.Add(age)
		if question := Decide(in).Question; (question != nil) != want {
			t.Errorf("after %s it asks %+v, want a question: %t", age, question, want)
		}
	}
}

// Events expire after an hour, and reading them can be postponed.
func TestReasonFromAnEventIsKeptWithoutTheEvent(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build"))
	s.newestJob("build").Status.Active = 0
	s.warnings[s.newestJob("build").UID] = "exceeded quota"
	s.reconcileAfter(eventsDelay)
	clear(s.warnings)
	if decision := s.reconcileAfter(2 * time.Hour); decision.Status.Reason != v1alpha1.ReasonPodNotCreated || !strings.Contains(s.stepStatus("build").Message, "exceeded quota") {
		t.Errorf("reason %q and message %q", decision.Status.Reason, s.stepStatus("build").Message)
	}
}

func TestTheStartDeadlineKeepsTheCauseThatOnlyAnEventNamed(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build", testbuilder.StepStartDeadline(30)))
	job := s.newestJob("build")
	testbuilder.Job(job).PodPending(s.now)
	job.Status.Active = 0
	s.warnings[job.UID] = "exceeded quota"
	s.reconcileAfter(eventsDelay)
	s.reconcileAfter(30 * time.Second)
	s.wantSteps("build: Stopping, StartDeadlineExceeded")
	if got := s.stepStatus("build").Message; !strings.Contains(got, "did not start within 30 s: Job "+job.Name+" cannot create its Pod: exceeded quota") {
		t.Errorf("message %q", got)
	}
}

func TestSequenceWithAJobThatAnotherClientSuspendedKeepsItsFinalizer(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").ActiveDeadline(60))
	testbuilder.Job(s.newestJob("build")).Suspended(s.now)
	if decision := s.reconcileAfter(time.Second); !decision.NeedsFinalizer || decision.ResumeJob != nil {
		t.Errorf("finalizer %t, resumed %t: that client can resume the Job at any time", decision.NeedsFinalizer, decision.ResumeJob != nil)
	}
	s.reconcileAfter(time.Minute)
	s.wantSteps("build: Stopping, DeadlineExceeded")
}
