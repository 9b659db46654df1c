//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

const (
	// queueLabel and priorityLabel are the labels with which Kueue admits a Job.
	queueLabel, priorityLabel = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
	// urgentPriority is a WorkloadPriorityClass of examples/kueue/quota.yaml.
	urgentPriority = "urgent"
	// workCPU is what each step and session of these tests requests, and the quota of their ClusterQueues: one of them runs at a time.
	workCPU = "10m"
)

// TestKueue tests SequentialJobs and AgenticSessions together with Kueue's controller.
func TestKueue(t *testing.T) {
	if os.Getenv("KUEUE") == "" {
		t.Skip("this cluster has no Kueue: use make soak SOAK_PARTS=kueue")
	}
	installKueue(t)
	runInParallel(t, []scenario{
		{"a step is Queued until the quota is free, and completes in its first attempt", testQueuedStep},
		{"a preempted step is Queued, and starts again in the same attempt, which has not failed", testPreemptedStep},
		{"a preempted session is Pending, and starts again in the same attempt and workspace, with the time that it has left", testPreemptedSession},
		{"a session is Pending in the default queue of its namespace until the quota is free, and completes", testSessionInDefaultQueue},
		{"a stopped session leaves the queue, and a deleted one leaves no Workload", testStoppedSessionInQueue},
	})
}

// installKueue does what an administrator does: it installs Kueue, and creates a quota.
func installKueue(t *testing.T) {
	t.Helper()
	apply := func(args ...string) error {
		output, err := newKubectlCommand(t.Context(), append([]string{"apply", "--server-side", "--force-conflicts", "-f"}, args...)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w\n%s", err, output)
		}
		return nil
	}
	require.NoError(t, apply(repositoryRoot+"/dist/kueue/install.yaml"))
	var last error
	defer func() {
		if last != nil {
			t.Log(last)
		}
	}()
	// Its webhooks serve a while after its Pod is ready.
	poll.Until(t, "Kueue to accept a quota", func() bool {
		last = apply(repositoryRoot+"/examples/kueue/quota.yaml", "-n", watchedNamespace)
		return last == nil
	})
}

// quotaManifest is a ClusterQueue for one step or session, and a LocalQueue for it.
const quotaManifest = `
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: %[1]s}
spec:
  namespaceSelector: {}
  preemption: {withinClusterQueue: LowerPriority}
  resourceGroups:
  - coveredResources: [cpu, memory, ephemeral-storage]
    flavors:
    - name: any-node
      resources: [{name: cpu, nominalQuota: ` + workCPU + `}, {name: memory, nominalQuota: 100Gi}, {name: ephemeral-storage, nominalQuota: 100Gi}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: %[2]s}
spec: {clusterQueue: %[1]s}
`

// createQuota creates a quota in a namespace, and returns the name of its LocalQueue.
func createQuota(t *testing.T, ns, clusterQueue, localQueue string) string {
	t.Helper()
	applyManifest(t, ns, fmt.Sprintf(quotaManifest, clusterQueue, localQueue))
	return localQueue
}

// occupyQuota uses the quota of a queue until the returned function is called.
func occupyQuota(t *testing.T, ns, queue string) (release func()) {
	t.Helper()
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{GenerateName: "occupier-", Namespace: ns, Labels: map[string]string{queueLabel: queue}}}
	spec := &job.Spec.Template.Spec
	spec.RestartPolicy, spec.TerminationGracePeriodSeconds = corev1.RestartPolicyNever, new(int64(0))
	spec.SecurityContext = restrictedPodSecurityContext()
	spec.Containers = []corev1.Container{{
		Name: "sleep", Image: busyboxImage, Command: []string{"sleep", "3600"}, SecurityContext: restrictedSecurityContext(), Resources: workResources(),
	}}
	require.NoError(t, cluster.Create(t.Context(), job))
	remove := func(ctx context.Context) error {
		return client.IgnoreNotFound(cluster.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	}
	t.Cleanup(func() { require.NoError(t, remove(context.Background())) })
	poll.Until(t, "the quota to be used", func() bool { return objectExists(t, job) && job.Spec.Suspend != nil && !*job.Spec.Suspend })
	return func() { require.NoError(t, remove(t.Context())) }
}

func workResources() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(workCPU)}}
}

// countedAs makes a step count towards the quota.
func countedAs(step testbuilder.StepOption) testbuilder.StepOption {
	return func(s *v1alpha1.Step) {
		step(s)
		testbuilder.ChangeContainer(func(c *corev1.Container) { c.Resources = workResources() })(s)
	}
}

func queuedSequence(name, queue string) *testbuilder.SequentialJobBuilder {
	return testbuilder.SequentialJob(name, "").JobLabel(queueLabel, queue)
}

// waitUntilQueued waits until a step waits in a queue, and checks what the status says about that.
func (s *sequenceTest) waitUntilQueued(step, queue string) {
	s.t.Helper()
	s.waitUntil("step "+step+" to be queued", func(*v1alpha1.SequentialJob) bool { return s.stepStatus(step).Phase == v1alpha1.StepQueued })
	status := s.stepStatus(step)
	require.True(s.t, status.Reason == v1alpha1.ReasonQueued && strings.HasSuffix(status.Message, " waits in queue "+queue),
		"the step is queued for reason %s: %s", status.Reason, status.Message)
	blocked := meta.FindStatusCondition(s.sj.Status.Conditions, v1alpha1.ConditionBlocked)
	if blocked == nil || blocked.Status != metav1.ConditionTrue || blocked.Reason != v1alpha1.ReasonQueued ||
		s.sj.Status.Phase != v1alpha1.PhaseRunning && s.sj.Status.Phase != v1alpha1.PhasePending {
		s.t.Errorf("phase %s, condition Blocked is %+v", s.sj.Status.Phase, blocked)
	}
}

// workloadsOf returns the names of the Workloads of Jobs whose names begin with a prefix. A Workload can outlive its Job.
func workloadsOf(t *testing.T, ns, prefix string) []string {
	t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: "kueue.x-k8s.io", Version: "v1beta2", Kind: "WorkloadList"})
	require.NoError(t, cluster.List(t.Context(), list, client.InNamespace(ns)))
	var names []string
	for i := range list.Items {
		if strings.HasPrefix(list.Items[i].GetName(), "job-"+prefix) {
			names = append(names, list.Items[i].GetName())
		}
	}
	return names
}

// wantWorkloads checks that the Workloads of an object's Jobs are found, so that none found later proves something.
func wantWorkloads(t *testing.T, object client.Object, want int) {
	t.Helper()
	names := workloadsOf(t, object.GetNamespace(), object.GetName())
	require.True(t, len(names) == want, "%s has the Workloads %q, want %d", object.GetName(), names, want)
}

func waitUntilNoWorkloads(t *testing.T, object client.Object) {
	t.Helper()
	poll.Until(t, object.GetName()+" to have no Workloads", func() bool { return len(workloadsOf(t, object.GetNamespace(), object.GetName())) == 0 })
}

func testQueuedStep(t *testing.T) {
	queue := createQuota(t, watchedNamespace, "queued-step", "queued-step")
	release := occupyQuota(t, watchedNamespace, queue)
	s := createSequence(t, queuedSequence("queued", queue).Step("a", countedAs(shellScript("true"))).Step("b", countedAs(shellScript("true"))).Obj())
	s.waitUntilQueued("a", queue)
	output, err := newKubectlCommand(t.Context(), "get", "sj", "-n", watchedNamespace, s.sj.Name).CombinedOutput()
	require.NoError(t, err)
	require.True(t, strings.Contains(string(output), v1alpha1.ReasonQueued), "kubectl get does not say that it is queued:\n%s", output)
	wantWorkloads(t, s.sj, 1)
	release()
	s.waitForPhase(v1alpha1.PhaseCompleted)
	s.wantEachStepOnce()
	require.Equal(t, 1, s.stepStatus("a").Attempt)
}

func testPreemptedStep(t *testing.T) {
	queue := createQuota(t, watchedNamespace, "preemption", "preemption")
	// The program exits with 0 after SIGTERM, and also when it is released.
	graceful := shellScript("trap 'exit 0' TERM; sleep 3600 & wait $! || true")
	s := createSequence(t, queuedSequence("preempted", queue).Step("a", countedAs(graceful)).Step("b", countedAs(shellScript("true"))).Obj())
	first := s.waitForRunningPod("a")
	job := s.listJobs()[0]

	urgent := createSequence(t, queuedSequence("urgent", queue).JobLabel(priorityLabel, urgentPriority).Step("a", countedAs(untilReleased())).Obj())
	urgent.waitForRunningPod("a")
	s.waitUntilQueued("a", queue)
	waitUntilDeleted(t, first)
	urgent.releaseStep("a")
	urgent.waitForPhase(v1alpha1.PhaseCompleted)

	s.releaseStep("a")
	s.waitForPhase(v1alpha1.PhaseCompleted)
	s.wantEachStepOnce()
	again := s.listJobs()[0]
	require.True(t, again.UID == job.UID, "the step has another Job")
	if status := s.stepStatus("a"); status.Attempt != 1 || status.FailedPods != 0 || status.FailedAttempts != 0 {
		t.Errorf("attempt %d, %d failed Pods, %d failed attempts", status.Attempt, status.FailedPods, status.FailedAttempts)
	}
}

// createQueuedRunner creates a SessionRunner whose sessions wait in a queue; with an empty name, in none that it names.
func createQueuedRunner(t *testing.T, ns, name string, labels map[string]string) string {
	t.Helper()
	createRunners(t, ns)
	runner := &v1alpha1.SessionRunner{}
	require.NoError(t, cluster.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: shellRunner}, runner))
	runner.ObjectMeta = metav1.ObjectMeta{Name: name, Namespace: ns}
	testbuilder.RunnerContainer(&runner.Spec).Resources.Requests[corev1.ResourceCPU] = resource.MustParse(workCPU)
	if len(labels) > 0 {
		runner.Spec.JobMetadata = &v1alpha1.ObjectMetadata{Labels: labels}
	}
	require.NoError(t, client.IgnoreAlreadyExists(cluster.Create(t.Context(), runner)))
	return name
}

// untilReleasedScript runs until releaseSession is called, or until it is terminated.
const untilReleasedScript = "sleep 3600 & trap 'kill $!; exit 143' TERM; wait || true"

// loggedScript is untilReleasedScript that reports how often it was started in the workspace.
const loggedScript = `echo started >> "$AGENTIC_WORKSPACE/log"; ` + untilReleasedScript + `
printf '{"summary": "%d starts"}' "$(wc -l < "$AGENTIC_WORKSPACE/log")" > "$AGENTIC_RESULT_FILE"`

func (s *sessionTest) releaseSession() {
	s.t.Helper()
	s.waitForPhase(v1alpha1.SessionRunning)
	sendSignal(s.t, s.currentPod(), "sleep", "TERM")
}

// waitUntilQueued waits until the session's Job waits in a queue, and checks what the status says about that.
func (s *sessionTest) waitUntilQueued(queue string) {
	s.t.Helper()
	s.waitUntil("to be queued", func(status *v1alpha1.AgenticSessionStatus) bool {
		return status.Phase == v1alpha1.SessionPending && status.QueuedSince != nil
	})
	s.wantCondition(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonQueued)
	status := &s.s.Status
	ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
	if want := "Job " + status.Attempt.JobName + " waits in queue " + queue; ready.Message != want {
		s.t.Errorf("the message is %q, want %q", ready.Message, want)
	}
	for kind, want := range map[string]metav1.ConditionStatus{
		v1alpha1.ConditionRunnerStarted: metav1.ConditionFalse, v1alpha1.ConditionBlocked: metav1.ConditionFalse,
	} {
		if c := meta.FindStatusCondition(status.Conditions, kind); c == nil || c.Status != want {
			s.t.Errorf("condition %s is %+v, want %s", kind, c, want)
		}
	}
}

func testPreemptedSession(t *testing.T) {
	queue := createQuota(t, sessionsNamespace, "preempted-session", "preempted-session")
	runner := createQueuedRunner(t, sessionsNamespace, queue, map[string]string{queueLabel: queue})
	urgentRunner := createQueuedRunner(t, sessionsNamespace, queue+"-urgent", map[string]string{queueLabel: queue, priorityLabel: urgentPriority})
	const timeout = 3600
	s := createSession(t, runner, loggedScript, func(spec *v1alpha1.AgenticSessionSpec) {
		setPersistentWorkspace(spec)
		spec.Limits.Timeout = v1alpha1.NewDuration(timeout * time.Second)
	})
	s.waitForPhase(v1alpha1.SessionRunning)
	first := s.currentPod()

	urgent := createSession(t, urgentRunner, untilReleasedScript, nil)
	urgent.waitForPhase(v1alpha1.SessionRunning)
	s.waitUntilQueued(queue)
	s.waitForEvents(v1alpha1.EventJobSuspended)
	waitUntilDeleted(t, first)
	used, job := s.s.Status.ActiveDuration, s.s.Status.Attempt.JobUID
	require.True(t, used.Duration.Duration != 0 && s.s.Status.Attempt.ActiveSince == nil,
		"%v count after the preemption, and the time since %s", used, s.s.Status.Attempt.ActiveSince)
	urgent.releaseSession()
	urgent.waitForPhase(v1alpha1.SessionCompleted)

	s.waitForPhase(v1alpha1.SessionRunning)
	status := &s.s.Status
	require.True(t, status.Attempt.Attempt == 1 && status.Attempt.JobUID == job && status.Retries+status.Disruptions == 0 && len(status.Attempts) == 0 && status.ActiveDuration == used,
		"%+v", status)
	s.waitUntil("to have a deadline", func(status *v1alpha1.AgenticSessionStatus) bool {
		var job batchv1.Job
		require.NoError(t, cluster.Get(t.Context(), client.ObjectKey{Namespace: sessionsNamespace, Name: status.Attempt.JobName}, &job))
		waited := status.Attempt.ActiveSince.Sub(job.Status.StartTime.Time)
		return *job.Spec.ActiveDeadlineSeconds == timeout-int64(used.Seconds())+int64(waited.Seconds())
	})
	s.releaseSession()
	s.waitForPhase(v1alpha1.SessionCompleted)
	s.wantRuns("1/1 Completed 0")
	s.wantSummary("2 starts")
}

func testSessionInDefaultQueue(t *testing.T) {
	queue := createQuota(t, deletionNamespace, "default-queue", "default")
	runner := createQueuedRunner(t, deletionNamespace, "default-queue", nil)
	release := occupyQuota(t, deletionNamespace, queue)
	s := createSessionIn(t, deletionNamespace, "session-", runner, "true", nil)
	s.waitUntilQueued(queue)
	release()
	s.waitForPhase(v1alpha1.SessionCompleted)
	s.wantRuns("1/1 Completed 0")
}

func testStoppedSessionInQueue(t *testing.T) {
	queue := createQuota(t, sessionsNamespace, "stopped-session", "stopped-session")
	runner := createQueuedRunner(t, sessionsNamespace, queue, map[string]string{queueLabel: queue})
	running := createSession(t, runner, untilReleasedScript, nil)
	running.waitForPhase(v1alpha1.SessionRunning)
	stopped, deleted := createSession(t, runner, "true", nil), createSession(t, runner, "true", nil)
	for _, s := range []*sessionTest{stopped, deleted} {
		s.waitUntilQueued(queue)
		wantWorkloads(t, s.s, 1)
	}
	stopped.patchSpec(`{"suspend": true}`)
	stopped.waitForPhase(v1alpha1.SessionStopped)
	waitUntilNoWorkloads(t, stopped.s)
	used := stopped.s.Status.ActiveDuration
	require.True(t, used.Duration.Duration == 0, "%v count of a session that did not run", used)
	for _, s := range []*sessionTest{deleted, running} {
		s.deleteSession()
		waitUntilDeleted(t, s.s)
		waitUntilNoWorkloads(t, s.s)
	}
}
