package agenticsession

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/require"
)

// testStartTime is the time at which all scenarios start.
var testStartTime = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// scenario is an observation that tests change from one reconciliation to the next.
type scenario struct {
	Observation
	t *testing.T
	// eventReasons of the last decision.
	eventReasons []string
	// claims that exist, by name, and Pods of others that mount them.
	claims    map[string]*metav1.PartialObjectMetadata
	uidCount  int
	otherPods []corev1.Pod
	// secretIsMissing means that the inputs do not exist.
	secretIsMissing bool
}

// newScenario returns a session that was just created, and its SessionRunner.
func newScenario(t *testing.T, change ...func(spec *v1alpha1.AgenticSessionSpec)) *scenario {
	t.Helper()
	s := &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{
		Name: "fix", Namespace: "ns", UID: "session", Generation: 1, CreationTimestamp: metav1.NewTime(testStartTime),
	}}
	s.Spec.Prompt, s.Spec.Runner = "do it", "default"
	for _, c := range change {
		c(&s.Spec)
	}
	return &scenario{t: t, claims: map[string]*metav1.PartialObjectMetadata{}, Observation: Observation{
		Session: s, Runner: newTestRunner(), Now: testStartTime, CreatedJobs: map[string]types.UID{}, Children: map[ChildKey]bool{},
	}}
}

// newRunningScenario returns a session whose runner just started.
func newRunningScenario(t *testing.T, change ...func(spec *v1alpha1.AgenticSessionSpec)) *scenario {
	t.Helper()
	s := newScenario(t, change...).startAttempt().startRunner()
	s.wantPhase(v1alpha1.SessionRunning, "")
	return s
}

func newTestRunner() *v1alpha1.SessionRunner {
	r := &v1alpha1.SessionRunner{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: "ns"}}
	r.Spec.Image = "runner:1"
	return r
}

// decideAndRecord answers questions as the API server would, records the status, and executes the decision, except for
// its Jobs and NetworkPolicies.
func (s *scenario) decideAndRecord() Decision {
	s.t.Helper()
	for range 7 {
		decision := Decide(s.Observation)
		if decision.Question == nil {
			s.Answers, s.Refusal = Answers{}, nil
			s.Session = s.Session.DeepCopy()
			s.Session.Status = decision.Status
			s.eventReasons = nil
			for _, e := range decision.Events {
				s.eventReasons = append(s.eventReasons, e.Reason)
			}
			s.applyObjects(&decision)
			return decision
		}
		s.answerQuestion(decision.Question)
	}
	s.t.Fatal("Decide keeps asking questions")
	return Decision{}
}

// reconcile decides and records within a chain.
func (s *scenario) reconcile() *scenario {
	s.t.Helper()
	s.decideAndRecord()
	return s
}

func (s *scenario) applyObjects(decision *Decision) {
	if decision.SetDeadline != nil {
		for i, job := range s.Jobs {
			if job.UID == decision.SetDeadline.Job.UID {
				s.Jobs[i] = job.DeepCopy()
				s.Jobs[i].Spec.ActiveDeadlineSeconds = decision.SetDeadline.Seconds
			}
		}
	}
	for _, object := range decision.ApplyObjects {
		kind := object.GetObjectKind().GroupVersionKind().Kind
		if _, exists := s.claims[object.GetName()]; kind == "PersistentVolumeClaim" && !exists {
			s.createClaim(object)
		}
		s.Children[ChildKey{kind, object.GetName()}] = true
	}
	if claim := decision.ShareClaim; claim != nil {
		claim = claim.DeepCopy()
		claim.OwnerReferences = append(claim.OwnerReferences, metav1.OwnerReference{UID: s.Session.UID})
		s.claims[claim.Name] = claim
	}
	if claim := decision.KeepClaim; claim != nil {
		claim = claim.DeepCopy()
		claim.OwnerReferences = KeptOwners(claim)
		s.claims[claim.Name] = claim
	}
	if reservation := decision.ReserveWorkspace; reservation != nil {
		claim := reservation.Claim.DeepCopy()
		claim.Annotations = map[string]string{AnnotationWorkspacePod: string(reservation.Pod.UID)}
		s.claims[claim.Name] = claim
		for i := range s.Pods {
			if s.Pods[i].UID == reservation.Pod.UID {
				s.Pods[i].Spec.SchedulingGates = nil
			}
		}
	}
}

func (s *scenario) createClaim(object metav1.Object) *metav1.PartialObjectMetadata {
	s.uidCount++
	claim := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: object.GetName(), UID: types.UID(fmt.Sprintf("claim-%d", s.uidCount)), Labels: object.GetLabels(), OwnerReferences: object.GetOwnerReferences(),
	}}
	s.claims[claim.Name] = claim
	return claim
}

func (s *scenario) answerQuestion(ask *Question) {
	switch {
	case ask.AllJobs:
		s.Answers.Listed = true
	case ask.Claim != "":
		if s.Answers.Claims == nil {
			s.Answers.Claims = map[string]*metav1.PartialObjectMetadata{}
		}
		s.Answers.Claims[ask.Claim] = s.claims[ask.Claim].DeepCopy()
	case ask.Mounts != "":
		isOther := func(pod corev1.Pod) bool { return !MountsClaim(&pod, ask.Mounts) || decision.HasPodEnded(&pod) }
		s.Answers.Mounts = map[string][]corev1.Pod{ask.Mounts: slices.DeleteFunc(slices.Concat(s.Pods, s.otherPods), isOther)}
	case ask.Secret != "":
		s.Answers.Secrets = map[string]bool{ask.Secret: !s.secretIsMissing}
	default:
		if s.Answers.Jobs == nil {
			s.Answers.Jobs = map[string]*batchv1.Job{}
		}
		s.Answers.Jobs[ask.JobName] = nil
		for _, job := range s.Jobs {
			if job.Name == ask.JobName {
				s.Answers.Jobs[ask.JobName] = job
			}
		}
	}
}

func (s *scenario) startAttempt() *scenario {
	s.t.Helper()
	s.createPlannedJob(s.decideAndRecord())
	return s
}

func (s *scenario) createPlannedJob(decision Decision) {
	s.t.Helper()
	require.True(s.t, decision.CreateJob != nil && decision.ChangesJobs(), "no Job is created: %+v", decision.Status)
	job := decision.CreateJob.DeepCopy()
	job.UID = types.UID("uid-of-" + job.Name)
	job.CreationTimestamp = metav1.NewTime(s.Now)
	job.Status.StartTime = new(metav1.NewTime(s.Now))
	s.Jobs = append(s.Jobs, job)
	s.createPod(job)
}

func (s *scenario) createPod(job *batchv1.Job) {
	name := fmt.Sprintf("%s-%d", job.Name, len(s.Pods))
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: job.Namespace, CreationTimestamp: metav1.NewTime(s.Now), UID: "uid-of-" + types.UID(name), Labels: job.Spec.Template.Labels,
		OwnerReferences: []metav1.OwnerReference{{Kind: "Job", Name: job.Name, UID: job.UID, Controller: new(true)}},
	}}
	pod.Spec = *job.Spec.Template.Spec.DeepCopy()
	pod.Spec.NodeName = "node"
	pod.Status.Phase = corev1.PodPending
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: v1alpha1.RunnerContainer}}
	s.Pods = append(s.Pods, pod)
}

func (s *scenario) createNetworkPolicies(decision Decision) {
	s.NetworkPolicies = nil
	for _, object := range decision.ApplyObjects {
		if policy, ok := object.(*networkingv1.NetworkPolicy); ok {
			s.NetworkPolicies = append(s.NetworkPolicies, *policy)
		}
	}
}

// refuse lets the API server refuse the next object.
func (s *scenario) refuse(class decision.Class) *scenario {
	s.Refusal = &decision.Refusal{Class: class, Kind: "Pod", Message: "refused"}
	return s
}

func (s *scenario) newestJob() *batchv1.Job { return s.Jobs[len(s.Jobs)-1] }

func (s *scenario) podSpec() *corev1.PodSpec { return &s.newestJob().Spec.Template.Spec }

// runnerVariable returns the value of a variable of the newest runner; empty if it has none.
func (s *scenario) runnerVariable(name string) string {
	env := s.podSpec().Containers[0].Env
	if i := slices.IndexFunc(env, func(v corev1.EnvVar) bool { return v.Name == name }); i >= 0 {
		return env[i].Value
	}
	return ""
}

func (s *scenario) newestPod() *corev1.Pod { return &s.Pods[len(s.Pods)-1] }

func (s *scenario) deletePod() *scenario {
	s.newestPod().DeletionGracePeriodSeconds = new(int64(GracePeriodSeconds))
	s.newestPod().DeletionTimestamp = new(metav1.NewTime(s.Now.Add(gracePeriod)))
	return s
}

func (s *scenario) newestRunnerStatus() *corev1.ContainerStatus {
	return &s.newestPod().Status.ContainerStatuses[0]
}

func (s *scenario) advanceClock(d time.Duration) *scenario {
	s.Now = s.Now.Add(d)
	return s
}

func (s *scenario) startRunner() *scenario {
	s.newestPod().Status.Phase = corev1.PodRunning
	s.newestRunnerStatus().State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(s.Now)}}
	s.newestRunnerStatus().Ready = true
	return s
}

func (s *scenario) setWaitingReason(reason string) *scenario {
	s.newestRunnerStatus().State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "why"}}
	return s
}

// blockPodStartup sets the condition of a Pod that its node has not prepared.
func (s *scenario) blockPodStartup() *scenario {
	s.newestPod().Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionFalse}}
	return s.setWaitingReason("ContainerCreating")
}

// exitRunner ends the runner with this code and message, and the Job with it.
func (s *scenario) exitRunner(code int32, message string) *scenario {
	s.terminateRunner(code, message)
	if code == 0 {
		s.newestPod().Status.Phase = corev1.PodSucceeded
		return s.endJob(batchv1.JobComplete, "")
	}
	return s.endJob(batchv1.JobFailed, batchv1.JobReasonBackoffLimitExceeded)
}

func (s *scenario) terminateRunner(code int32, message string) {
	start := metav1.NewTime(s.Now)
	if running := s.newestRunnerStatus().State.Running; running != nil {
		start = running.StartedAt
	}
	s.newestRunnerStatus().State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: code, Message: message, StartedAt: start, FinishedAt: metav1.NewTime(s.Now),
	}}
}

func (s *scenario) disrupt(reason string) *scenario {
	s.newestPod().Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason}}
	return s
}

func (s *scenario) endJob(kind batchv1.JobConditionType, reason string) *scenario {
	job := s.newestJob()
	job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{
		Type: kind, Status: corev1.ConditionTrue, Reason: reason, LastTransitionTime: metav1.NewTime(s.Now),
	})
	switch kind {
	case batchv1.JobComplete:
		job.Status.CompletionTime = new(metav1.NewTime(s.Now))
	case batchv1.JobFailed:
		s.newestPod().Status.Phase = corev1.PodFailed
	}
	return s
}

func (s *scenario) markJobDeleted() *scenario {
	s.newestJob().DeletionTimestamp = new(metav1.NewTime(s.Now))
	return s
}

func (s *scenario) removeJobAndPod() *scenario {
	s.Jobs, s.Pods = s.Jobs[:len(s.Jobs)-1], s.Pods[:len(s.Pods)-1]
	return s
}

func (s *scenario) updateSpec(change func(spec *v1alpha1.AgenticSessionSpec)) *scenario {
	s.Session = s.Session.DeepCopy()
	change(&s.Session.Spec)
	s.Session.Generation++
	return s
}

func suspend(spec *v1alpha1.AgenticSessionSpec) { spec.Suspend = true }
func resume(spec *v1alpha1.AgenticSessionSpec)  { spec.Suspend = false }

func requestNextRun(spec *v1alpha1.AgenticSessionSpec) {
	spec.Rerun = &v1alpha1.Rerun{ID: ptr.Deref(spec.Rerun, v1alpha1.Rerun{}).ID + "+"}
}

func withRetryLimit(limit int32) func(spec *v1alpha1.AgenticSessionSpec) {
	return func(spec *v1alpha1.AgenticSessionSpec) {
		spec.Retry = &v1alpha1.SessionRetry{Retry: v1alpha1.Retry{Limit: &limit}}
	}
}

func withTimeout(timeout int) func(spec *v1alpha1.AgenticSessionSpec) {
	return func(spec *v1alpha1.AgenticSessionSpec) { spec.Limits.Timeout = seconds(timeout) }
}

func setInteractive(spec *v1alpha1.AgenticSessionSpec) { spec.Interactive = true }

func (s *scenario) wantPhase(phase v1alpha1.SessionPhase, reason string) Decision {
	s.t.Helper()
	decision := s.decideAndRecord()
	ready := meta.FindStatusCondition(decision.Status.Conditions, v1alpha1.ConditionReady)
	require.True(s.t, decision.Status.Phase == phase && (reason == "" || ready.Reason == reason),
		"phase %s (%s: %s), want %s (%s)", decision.Status.Phase, ready.Reason, ready.Message, phase, reason)
	isOver := isSessionFinished(s.Session) || phase == v1alpha1.SessionStopped && lastRun(&decision.Status) != nil
	require.True(s.t, IsAtRest(s.Session) == isOver, "in phase %s it is at rest: %t", phase, !isOver)
	return decision
}

func (s *scenario) wantCondition(kind string, status metav1.ConditionStatus, reason string) {
	s.t.Helper()
	c := meta.FindStatusCondition(s.Session.Status.Conditions, kind)
	require.True(s.t, c != nil && c.Status == status && c.Reason == reason, "condition %+v, want %s=%s (%s)", c, kind, status, reason)
}

// wantDeadline checks the deadline of the newest Job; -1 means none.
func (s *scenario) wantDeadline(want int64) {
	s.t.Helper()
	require.Equal(s.t, want, s.jobDeadlineSeconds())
}

func (s *scenario) wantActiveSeconds(want float64) {
	s.t.Helper()
	require.Equal(s.t, want, s.Session.Status.ActiveDuration.Seconds())
}

// wantNotAccepted decides, and checks that nothing is created, because of the spec of the session or of its SessionRunner.
func (s *scenario) wantNotAccepted(message string) {
	s.t.Helper()
	decision := s.decideAndRecord()
	c := s.findCondition(v1alpha1.ConditionSpecAccepted)
	isCreated := decision.CreateJob != nil || decision.DryRunPod != nil || len(decision.ApplyObjects) > 0
	require.True(s.t, !isCreated && c.Status == metav1.ConditionFalse && strings.Contains(c.Message, message),
		"SpecAccepted=%s: %s, want %q; objects are created: %t", c.Status, c.Message, message, isCreated)
}

func (s *scenario) findCondition(kind string) *metav1.Condition {
	return cmp.Or(meta.FindStatusCondition(s.Session.Status.Conditions, kind), &metav1.Condition{})
}

func (s *scenario) wantEvent(reason string) {
	s.t.Helper()
	require.True(s.t, slices.Contains(s.eventReasons, reason), "events %q, want %s among them", s.eventReasons, reason)
}
