package ui

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func ago(d time.Duration) *metav1.Time {
	return &metav1.Time{Time: time.Now().Add(-d).Truncate(time.Second)}
}

func create[T client.Object](t *testing.T, object T, setStatus func(T)) T {
	t.Helper()
	require.NoError(t, cluster.Create(t.Context(), object))
	return update(t, object, setStatus)
}

func update[T client.Object](t *testing.T, object T, setStatus func(T)) T {
	t.Helper()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error { // a controller may change it too
		if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		setStatus(object)
		return cluster.Status().Update(t.Context(), object)
	})
	require.NoError(t, err)
	return object
}

func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: *ago(3 * time.Minute)}
}

func newSequence(ns, name string, steps ...string) *v1alpha1.SequentialJob {
	builder := testbuilder.SequentialJob(name, ns)
	for _, step := range steps {
		builder.Step(step, testbuilder.StepImage("registry.example/etl:1"))
	}
	sj := builder.Obj()
	sj.ObjectMeta = metav1.ObjectMeta{Name: name, Namespace: ns}
	sj.Status = v1alpha1.SequentialJobStatus{}
	return sj
}

// failedSequence has run twice: its second step failed again.
func failedSequence(t *testing.T, ns, name, message, output string) *v1alpha1.SequentialJob {
	sj := newSequence(ns, name, "backup", "migrate", "seed", "verify")
	return create(t, sj, func(sj *v1alpha1.SequentialJob) {
		sj.Status = v1alpha1.SequentialJobStatus{
			Phase: v1alpha1.PhaseFailed, Reason: "BackoffLimitExceeded", RunStatus: v1alpha1.RunStatus{Run: 1, Times: v1alpha1.Times{StartTime: ago(40 * time.Minute), CompletionTime: ago(12 * time.Minute)}},
			ObservedStatus: v1alpha1.ObservedStatus{Conditions: []metav1.Condition{condition(v1alpha1.ConditionReady, metav1.ConditionFalse, "Failed", "step migrate failed")}},
			Steps: []v1alpha1.StepStatus{
				{Name: "backup", Phase: v1alpha1.StepSucceeded, JobAttempt: v1alpha1.JobAttempt{AttemptNumber: v1alpha1.AttemptNumber{Attempt: 1, Run: 1}, JobName: name + "-backup", Times: v1alpha1.Times{StartTime: ago(40 * time.Minute), CompletionTime: ago(25 * time.Minute)}}, Output: output},
				{Name: "migrate", Phase: v1alpha1.StepFailed, JobAttempt: v1alpha1.JobAttempt{AttemptNumber: v1alpha1.AttemptNumber{Attempt: 3, Run: 1}, JobName: name + "-migrate", Times: v1alpha1.Times{StartTime: ago(25 * time.Minute), CompletionTime: ago(12 * time.Minute)}, ExitCode: new(int32(3)), Explanation: v1alpha1.Explanation{Reason: "BackoffLimitExceeded", Message: message}}, FailedAttempts: 3},
				{Name: "seed", Phase: v1alpha1.StepSkipped, JobAttempt: v1alpha1.JobAttempt{Explanation: v1alpha1.Explanation{Reason: "PreviousStepFailed"}}},
				{Name: "verify", Phase: v1alpha1.StepSkipped, JobAttempt: v1alpha1.JobAttempt{Explanation: v1alpha1.Explanation{Reason: "PreviousStepFailed"}}},
			},
		}
	})
}

func runningSequence(t *testing.T, ns, name string) *v1alpha1.SequentialJob {
	sj := newSequence(ns, name, "extract", "transform", "load")
	return create(t, sj, func(sj *v1alpha1.SequentialJob) {
		sj.Status = v1alpha1.SequentialJobStatus{
			Phase: v1alpha1.PhaseRunning, RunStatus: v1alpha1.RunStatus{Run: 1, Times: v1alpha1.Times{StartTime: ago(9 * time.Minute)}}, Progress: v1alpha1.Progress{CurrentStep: "transform"},
			ObservedStatus: v1alpha1.ObservedStatus{Conditions: []metav1.Condition{condition(v1alpha1.ConditionReady, metav1.ConditionFalse, "Running", "step transform runs")}},
			Steps: []v1alpha1.StepStatus{
				{Name: "extract", Phase: v1alpha1.StepSucceeded, JobAttempt: v1alpha1.JobAttempt{AttemptNumber: v1alpha1.AttemptNumber{Attempt: 1, Run: 1}, JobName: name + "-extract", Times: v1alpha1.Times{StartTime: ago(9 * time.Minute), CompletionTime: ago(5 * time.Minute)}}},
				{Name: "transform", Phase: v1alpha1.StepRunning, JobAttempt: v1alpha1.JobAttempt{AttemptNumber: v1alpha1.AttemptNumber{Attempt: 1, Run: 1}, JobName: name + "-transform", Times: v1alpha1.Times{StartTime: ago(5 * time.Minute)}}},
				{Name: "load", Phase: v1alpha1.StepPending},
			},
		}
	})
}

// waitingSequence waits for the approval of its second step.
func waitingSequence(t *testing.T, ns, name string) *v1alpha1.SequentialJob {
	sj := newSequence(ns, name, "build", "deploy")
	sj.Spec.Containers[1].Step = &v1alpha1.StepOptions{RequireApproval: true}
	return create(t, sj, func(sj *v1alpha1.SequentialJob) {
		sj.Status = v1alpha1.SequentialJobStatus{
			Phase: v1alpha1.PhaseSuspended, Reason: v1alpha1.ReasonApprovalRequired, RunStatus: v1alpha1.RunStatus{Run: 1, Times: v1alpha1.Times{StartTime: ago(20 * time.Minute)}},
			ObservedStatus: v1alpha1.ObservedStatus{ObservedGeneration: sj.Generation},
			Approval:       &v1alpha1.SequenceApproval{Run: 1, Step: "deploy", Hash: "abc"},
			Steps: []v1alpha1.StepStatus{
				{Name: "build", Phase: v1alpha1.StepSucceeded, JobAttempt: v1alpha1.JobAttempt{AttemptNumber: v1alpha1.AttemptNumber{Attempt: 1, Run: 1}, JobName: name + "-build", Times: v1alpha1.Times{StartTime: ago(20 * time.Minute), CompletionTime: ago(16 * time.Minute)}}},
				{Name: "deploy", Phase: v1alpha1.StepPending, JobAttempt: v1alpha1.JobAttempt{Explanation: v1alpha1.Explanation{Reason: v1alpha1.ReasonApprovalRequired, Message: "waits for an approval"}}},
			},
		}
	})
}

func newQueue(t *testing.T, ns, name, message string, dead int64) *v1alpha1.Queue {
	q := &v1alpha1.Queue{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns},
		Spec:       v1alpha1.QueueSpec{QueueSettings: v1alpha1.QueueSettings{Broker: &v1alpha1.Broker{Engine: v1alpha1.EngineNATS, BrokerAccess: v1alpha1.BrokerAccess{URLSecretRef: v1alpha1.KeyReference{LocalReference: v1alpha1.LocalReference{Name: "broker"}}}}}},
	}
	return create(t, q, func(q *v1alpha1.Queue) {
		q.Status = v1alpha1.QueueStatus{
			Name: "mail", Engine: v1alpha1.EngineNATS, MessageCounts: v1alpha1.MessageCounts{Backlog: new(int64(1280)), InFlight: new(int64(16)), WaitP95: &metav1.Duration{Duration: 4200 * time.Millisecond}}, Delayed: new(int64(4)), Dead: &dead, OldestTime: ago(90 * time.Second),
			ArrivalRate: new(resource.MustParse("31500m")), ServiceRate: new(resource.MustParse("28")),
			ObservedStatus: v1alpha1.ObservedStatus{Conditions: []metav1.Condition{
				condition(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady, message),
				condition(v1alpha1.ConditionDeadLettersPresent, metav1.ConditionTrue, v1alpha1.ReasonDeadLetters, message),
			}},
		}
	})
}

func newPool(t *testing.T, ns, name, message string) *v1alpha1.WorkerPool {
	wp := &v1alpha1.WorkerPool{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns},
		Spec: v1alpha1.WorkerPoolSpec{
			Image: "registry.example/worker:2", Queues: []v1alpha1.PoolQueue{{LocalReference: v1alpha1.LocalReference{Name: "mail"}}}, Concurrency: 4,
			Autoscaling: &v1alpha1.Autoscaling{MinReplicas: 2, MaxReplicas: 40, WaitP95: &v1alpha1.Duration{Duration: metav1.Duration{Duration: time.Minute}}},
		},
	}
	return create(t, wp, func(wp *v1alpha1.WorkerPool) {
		wp.Status = v1alpha1.WorkerPoolStatus{
			Desired: 12, WorkerCounts: v1alpha1.WorkerCounts{Replicas: 13, Ready: 11, Draining: 1}, Busy: new(int32(9)), MessageCounts: v1alpha1.MessageCounts{Backlog: new(int64(1280)), InFlight: new(int64(16)), WaitP95: &metav1.Duration{Duration: 4200 * time.Millisecond}}, CurrentRevision: name + "-1", UpdatedRevision: name + "-2",
			ObjectiveMet: metav1.ConditionTrue,
			Revisions: []v1alpha1.RevisionStatus{
				{Name: name + "-2", Version: "2", Image: "registry.example/worker:2", WorkerCounts: v1alpha1.WorkerCounts{Replicas: 2, Ready: 2}, Succeeded: new(int64(412)), Failed: new(int64(3))},
				{Name: name + "-1", Version: "1", Image: "registry.example/worker:1", WorkerCounts: v1alpha1.WorkerCounts{Replicas: 11, Ready: 9, Draining: 1}, Succeeded: new(int64(90211)), Failed: new(int64(120))},
			},
			LastDecision: &v1alpha1.ScaleDecision{
				Time: ago(20 * time.Second), Recommendation: 12, Explanation: v1alpha1.Explanation{Reason: "BacklogAboveObjective", Message: message},
			},
			ObservedStatus: v1alpha1.ObservedStatus{Conditions: []metav1.Condition{condition(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady, message)}},
		}
	})
}

func createSession(t *testing.T, ns, name, text string, interactive bool) *v1alpha1.AgenticSession {
	t.Helper()
	s := &v1alpha1.AgenticSession{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns},
		Spec: v1alpha1.AgenticSessionSpec{
			Prompt: text, DisplayName: text, Limits: v1alpha1.SessionLimits{RunLimits: v1alpha1.RunLimits{Timeout: v1alpha1.NewDuration(30 * time.Minute), MaxCostUSD: new(v1alpha1.Number("2.50"))}},
			Repos: []v1alpha1.SessionRepo{{GitSource: v1alpha1.GitSource{URL: "https://git.example/team/shop.git", Branch: "main"}}}, Interactive: interactive,
		},
	}
	return create(t, s, func(s *v1alpha1.AgenticSession) {
		s.Status = v1alpha1.AgenticSessionStatus{
			Phase: v1alpha1.SessionRunning, RunStatus: v1alpha1.RunStatus{Run: 1, Times: v1alpha1.Times{StartTime: ago(15 * time.Minute)}}, ActiveDuration: v1alpha1.Duration{Duration: metav1.Duration{Duration: 8 * time.Minute}},
			Attempt:      v1alpha1.SessionAttempt{JobAttempt: v1alpha1.JobAttempt{AttemptNumber: v1alpha1.AttemptNumber{Run: 1, Attempt: 2}, JobName: name + "-r1-a2", Times: v1alpha1.Times{StartTime: ago(6 * time.Minute)}}, ActiveSince: ago(5 * time.Minute), CostUSD: new(v1alpha1.Number("0.31"))},
			TotalCostUSD: new(v1alpha1.Number("0.84")),
			Attempts:     []v1alpha1.SessionAttempt{{JobAttempt: v1alpha1.JobAttempt{AttemptNumber: v1alpha1.AttemptNumber{Run: 1, Attempt: 1}, Explanation: v1alpha1.Explanation{Reason: "ExitedWithError", Message: text}, Times: v1alpha1.Times{StartTime: ago(15 * time.Minute), CompletionTime: ago(7 * time.Minute)}}, Outcome: v1alpha1.RunRetried, CostUSD: new(v1alpha1.Number("0.53"))}},
			Result: &v1alpha1.SessionResult{AttemptNumber: v1alpha1.AttemptNumber{Run: 1, Attempt: 1}, Summary: text, Repositories: []v1alpha1.SessionRepositoryResult{
				{Name: "shop", Branch: "fix-tests", Commit: "4f1c9a7e22b08d51", Pushed: true, PullRequestURL: "https://git.example/team/shop/pull/17"},
				{Name: "docs", Branch: text, Error: text, PullRequestURL: text},
			}},
			ObservedStatus: v1alpha1.ObservedStatus{Conditions: []metav1.Condition{condition(v1alpha1.ConditionReady, metav1.ConditionFalse, "Running", "")}},
		}
	})
}

func newSchedule(t *testing.T, ns, name, message string) *v1alpha1.Schedule {
	s := &v1alpha1.Schedule{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns},
		Spec: v1alpha1.ScheduleSpec{
			Cron:          v1alpha1.Cron{Schedule: "30 2 * * *", TimeZone: "Europe/Berlin"},
			SequentialJob: &v1alpha1.ScheduleTemplate{Spec: runtime.RawExtension{Raw: []byte(`{"containers":[{"name":"extract","image":"registry.example/etl:1"}]}`)}},
		},
	}
	return create(t, s, func(s *v1alpha1.Schedule) {
		s.Status = v1alpha1.ScheduleStatus{
			LastScheduleTime: ago(11 * time.Hour), NextScheduleTime: ago(-13 * time.Hour), LastSuccessfulTime: ago(11 * time.Hour), Runs: 31, Missed: 1,
			LastMissed:     &v1alpha1.MissedTime{Time: *ago(59 * time.Hour), Explanation: v1alpha1.Explanation{Reason: v1alpha1.MissedTooLate, Message: message}},
			ObservedStatus: v1alpha1.ObservedStatus{Conditions: []metav1.Condition{condition(v1alpha1.ConditionReady, metav1.ConditionTrue, "Scheduled", message), condition(v1alpha1.ConditionLastRunSucceeded, metav1.ConditionTrue, v1alpha1.ReasonRunSucceeded, "")}},
		}
	})
}

func newWorkerPod(t *testing.T, ns, poolName, name string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: ns, Annotations: map[string]string{"yardmaster.dev/workerpool": poolName},
			Labels: map[string]string{"yardmaster.dev/workerpool": poolName, "yardmaster.dev/revision": "1"},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "worker", Image: "registry.example/worker:1"}}, SchedulerName: "none"},
	}
	return create(t, pod, func(pod *corev1.Pod) {
		pod.Status.Phase, pod.Status.Conditions = corev1.PodRunning, []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	})
}

// stepPod creates the Pod of a step, which the proxy has a log of.
func stepPod(t *testing.T, sj *v1alpha1.SequentialJob, step string) {
	t.Helper()
	createPod(t, sj.Namespace, sj.Name+"-"+step, step, map[string]string{v1alpha1.LabelSequentialJobUID: string(sj.UID), v1alpha1.LabelStep: step})
}

// sessionPod creates the Pod of a session, which the proxy has a log of, and which accepts messages.
func sessionPod(t *testing.T, s *v1alpha1.AgenticSession) {
	t.Helper()
	createPod(t, s.Namespace, s.Status.Attempt.JobName, v1alpha1.RunnerContainer, map[string]string{"yardmaster.dev/session-uid": string(s.UID)})
}

// createPod creates a running Pod of a Job. Its owner is an object with the name of the Job: without one, the garbage collector
// would delete the Pod, and a Job would be controlled.
func createPod(t *testing.T, ns, job, container string, labels map[string]string) {
	t.Helper()
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: job, Namespace: ns}}
	require.NoError(t, cluster.Create(t.Context(), owner))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: job + "-x7k2p", Namespace: ns, Labels: labels,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: job, UID: owner.UID, Controller: new(true)}},
		},
		Spec: corev1.PodSpec{NodeName: "", Containers: []corev1.Container{{
			Name: container, Image: "registry.example/etl:1", Ports: []corev1.ContainerPort{{Name: "session", ContainerPort: 8080}},
		}}, SchedulerName: "none"},
	}
	create(t, pod, func(pod *corev1.Pod) {
		pod.Status.Phase, pod.Status.Conditions = corev1.PodRunning, []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: container, Image: "registry.example/etl:1", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: *ago(time.Minute)}}}}
	})
}
