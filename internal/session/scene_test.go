package session

import (
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// noon is when all scenes begin.
var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// scene is an input that tests change, and that goes on from pass to pass.
type scene struct {
	Input
	t *testing.T
	// told are the events of the last pass.
	told []string
}

// scenery is a session that was just created, with its SessionRunner.
func scenery(t *testing.T, change ...func(spec *v1alpha1.AgenticSessionSpec)) *scene {
	t.Helper()
	s := &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{
		Name: "fix", Namespace: "ns", UID: "session", Generation: 1, CreationTimestamp: metav1.NewTime(noon),
	}}
	s.Spec.Prompt, s.Spec.Runner, s.Spec.RunRequest, s.Spec.OperatingMode = "do it", "default", 1, v1alpha1.ModeRunning
	for _, c := range change {
		c(&s.Spec)
	}
	return &scene{t: t, Input: Input{Session: s, Runner: runner(), Now: noon, Created: map[string]types.UID{}}}
}

func runner() *v1alpha1.SessionRunner {
	r := &v1alpha1.SessionRunner{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: "ns"}}
	r.Spec.Image = "runner:1"
	return r
}

// decide answers what is asked for as the API server would, and records the status.
func (s *scene) decide() Plan {
	s.t.Helper()
	for range 4 {
		plan := Decide(s.Input)
		if plan.Ask == nil {
			s.Answers, s.Refusal = Answers{}, nil
			s.Session = s.Session.DeepCopy()
			s.Session.Status = plan.Status
			s.told = nil
			for _, e := range plan.Events {
				s.told = append(s.told, e.Reason)
			}
			return plan
		}
		s.answer(plan.Ask)
	}
	s.t.Fatal("it asks for ever")
	return Plan{}
}

func (s *scene) answer(ask *Question) {
	if ask.AllJobs {
		s.Answers.Listed = true
		return
	}
	if s.Answers.Read == nil {
		s.Answers.Read = map[string]*batchv1.Job{}
	}
	s.Answers.Read[ask.JobNamed] = nil
	for _, job := range s.Jobs {
		if job.Name == ask.JobNamed {
			s.Answers.Read[ask.JobNamed] = job
		}
	}
}

// begin takes the scene to where the Job is made.
func (s *scene) begin() *scene {
	s.t.Helper()
	s.make(s.decide())
	return s
}

// make carries out a plan's Job as the API server and the Job controller do.
func (s *scene) make(plan Plan) {
	s.t.Helper()
	if plan.Create == nil {
		s.t.Fatalf("no Job is made: phase %s, %+v", plan.Status.Phase, plan.Status.Conditions)
	}
	job := plan.Create.DeepCopy()
	job.UID = types.UID("uid-of-" + job.Name)
	job.CreationTimestamp = metav1.NewTime(s.Now)
	job.Status.StartTime = new(metav1.NewTime(s.Now))
	s.Jobs = append(s.Jobs, job)
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: job.Name + "-x", Namespace: job.Namespace, CreationTimestamp: job.CreationTimestamp,
		OwnerReferences: []metav1.OwnerReference{{Kind: "Job", Name: job.Name, UID: job.UID, Controller: new(true)}},
	}}
	pod.Spec.NodeName = "node"
	pod.Status.Phase = corev1.PodPending
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: v1alpha1.RunnerContainer}}
	s.Pods = append(s.Pods, pod)
}

// job and pod are the newest there are, and runnerState the state of the runner in it.
func (s *scene) job() *batchv1.Job { return s.Jobs[len(s.Jobs)-1] }

func (s *scene) pod() *corev1.Pod { return &s.Pods[len(s.Pods)-1] }

func (s *scene) runnerState() *corev1.ContainerStatus { return &s.pod().Status.ContainerStatuses[0] }

// after lets time go by.
func (s *scene) after(d time.Duration) *scene {
	s.Now = s.Now.Add(d)
	return s
}

// running has the runner started now.
func (s *scene) running() *scene {
	s.pod().Status.Phase = corev1.PodRunning
	s.runnerState().State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(s.Now)}}
	s.runnerState().Ready = true
	return s
}

// waiting has a container of the Pod wait for that reason.
func (s *scene) waiting(reason string) *scene {
	s.runnerState().State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "why"}}
	return s
}

// unready has the Pod's node not get it ready for its containers.
func (s *scene) unready() *scene {
	s.pod().Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionFalse}}
	return s.waiting("ContainerCreating")
}

// exited has the runner end with the code and the message, and the Job with it.
func (s *scene) exited(code int32, message string) *scene {
	s.runnerState().State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: code, Message: message, StartedAt: metav1.NewTime(s.Now), FinishedAt: metav1.NewTime(s.Now),
	}}
	if code == 0 {
		return s.ended(batchv1.JobComplete, "")
	}
	return s.ended(batchv1.JobFailed, batchv1.JobReasonBackoffLimitExceeded)
}

// ended has the Job end.
func (s *scene) ended(kind batchv1.JobConditionType, reason string) *scene {
	job := s.job()
	job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{
		Type: kind, Status: corev1.ConditionTrue, Reason: reason, LastTransitionTime: metav1.NewTime(s.Now),
	})
	if kind == batchv1.JobComplete {
		job.Status.CompletionTime = new(metav1.NewTime(s.Now))
	}
	return s
}

// deleting has the Job on its way out, and gone has it and its Pod gone.
func (s *scene) deleting() *scene {
	s.job().DeletionTimestamp = new(metav1.NewTime(s.Now))
	return s
}

func (s *scene) gone() *scene {
	s.Jobs, s.Pods = s.Jobs[:len(s.Jobs)-1], s.Pods[:len(s.Pods)-1]
	return s
}

// changed has the user change the spec.
func (s *scene) changed(change func(spec *v1alpha1.AgenticSessionSpec)) *scene {
	s.Session = s.Session.DeepCopy()
	change(&s.Session.Spec)
	s.Session.Generation++
	return s
}

func stopped(spec *v1alpha1.AgenticSessionSpec) { spec.OperatingMode = v1alpha1.ModeStopped }

func started(spec *v1alpha1.AgenticSessionSpec) { spec.OperatingMode = v1alpha1.ModeRunning }

func again(spec *v1alpha1.AgenticSessionSpec) { spec.RunRequest++ }

func retry(limit int32) func(spec *v1alpha1.AgenticSessionSpec) {
	return func(spec *v1alpha1.AgenticSessionSpec) { spec.Retry = &v1alpha1.SessionRetry{Limit: limit} }
}

func timeout(seconds int32) func(spec *v1alpha1.AgenticSessionSpec) {
	return func(spec *v1alpha1.AgenticSessionSpec) { spec.Timeout = &seconds }
}

func interactive(spec *v1alpha1.AgenticSessionSpec) { spec.Interactive = true }

// wants checks the phase that a pass comes to, and the reason why.
func (s *scene) wants(phase v1alpha1.SessionPhase, reason string) Plan {
	s.t.Helper()
	plan := s.decide()
	ready := meta.FindStatusCondition(plan.Status.Conditions, v1alpha1.ConditionReady)
	if plan.Status.Phase != phase || reason != "" && ready.Reason != reason {
		s.t.Fatalf("phase %s (%s: %s), want %s (%s)", plan.Status.Phase, ready.Reason, ready.Message, phase, reason)
	}
	return plan
}

// is checks a condition.
func (s *scene) is(kind string, status metav1.ConditionStatus, reason string) {
	s.t.Helper()
	c := meta.FindStatusCondition(s.Session.Status.Conditions, kind)
	if c == nil || c.Status != status || c.Reason != reason {
		s.t.Errorf("condition %+v, want %s=%s (%s)", c, kind, status, reason)
	}
}

// tells checks that the last pass told that event.
func (s *scene) tells(reason string) {
	s.t.Helper()
	if !slices.Contains(s.told, reason) {
		s.t.Errorf("events %q, want %s among them", s.told, reason)
	}
}
