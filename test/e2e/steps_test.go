//go:build e2e

package e2e

import (
	"io"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func testStepExitCode(t *testing.T) {
	s := createSequence(t, testbuilder.SequentialJob("migrate", "").
		Step("backup", shellScript("true")).
		Step("migrate", shellScript("echo migrating; printf 'no such table: users' > /dev/termination-log; exit 7")).
		Step("seed", shellScript("true")).
		Obj())
	s.waitForPhase(v1alpha1.PhaseFailed)
	step := s.stepStatus("migrate")
	const want = "container migrate exited with code 7: no such table: users"
	if step.Phase != v1alpha1.StepFailed || step.Message != want {
		t.Errorf("the step is %s: %q, want %q", step.Phase, step.Message, want)
	}
	if phase := s.stepStatus("seed").Phase; phase != v1alpha1.StepSkipped {
		t.Errorf("the next step is %s", phase)
	}
	pods := s.listPods(&s.listJobs()[1])
	if len(pods) != 1 {
		t.Fatalf("the step has %d Pods", len(pods))
	}
	if logs := s.readLogs(pods[0].Name, "migrate"); logs != "migrating\n" {
		t.Errorf("logs %q", logs)
	}
}

func testStepOutOfMemory(t *testing.T) {
	s := createSequence(t, testbuilder.SequentialJob("out-of-memory", "").Step("load", testbuilder.ChangeContainer(func(c *corev1.Container) {
		c.Image, c.Command = busyboxImage, []string{"tail", "/dev/zero"}
		c.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("32Mi")}
	})).Obj())
	s.waitForPhase(v1alpha1.PhaseFailed)
	if message := s.stepStatus("load").Message; message != "container load exited with code 137 (OOMKilled)" {
		t.Errorf("message %q", message)
	}
}

func testStepImageMissing(t *testing.T) {
	s := createSequence(t, testbuilder.SequentialJob("stuck", "").
		Step("a", testbuilder.StepImage("registry.invalid/nothing:1"), testbuilder.StepStartDeadline(60)).
		Finally("clean", shellScript("true")).
		Obj())
	s.waitForPhase(v1alpha1.PhaseFailed)
	step := s.stepStatus("a")
	if step.Reason != v1alpha1.ReasonStartDeadlineExceeded {
		t.Errorf("reason %s", step.Reason)
	}
	if !strings.Contains(step.Message, "Image") || !strings.Contains(step.Message, "registry.invalid/nothing:1") {
		t.Errorf("message %q", step.Message)
	}
	if took := step.FinishTime.Sub(step.StartTime.Time).Seconds(); took < 60 {
		t.Errorf("it took %.0f s", took)
	}
	if phase := s.stepStatus("clean").Phase; phase != v1alpha1.StepSucceeded {
		t.Errorf("finally is %s", phase)
	}
}

func testStepSidecar(t *testing.T) {
	template := corev1.PodTemplateSpec{}
	template.Spec.InitContainers = []corev1.Container{{
		Name:            "proxy",
		Image:           busyboxImage,
		Command:         []string{"sh", "-c", "trap 'exit 0' TERM; echo ready; sleep 3600 & wait"},
		RestartPolicy:   new(corev1.ContainerRestartPolicyAlways),
		SecurityContext: restrictedSecurityContext(),
	}}
	s := createSequence(t, testbuilder.SequentialJob("proxied", "").Template(template).
		Step("a", shellScript("true")).
		Step("b", shellScript("true")).
		Obj())
	s.waitForPhase(v1alpha1.PhaseCompleted)
	s.wantEachStepOnce()
	if logs := s.readLogs(s.listPods(&s.listJobs()[1])[0].Name, "proxy"); logs != "ready\n" {
		t.Errorf("the sidecar logged %q", logs)
	}
}

func testWorkspaceAndOutput(t *testing.T) {
	s := createSequence(t, testbuilder.SequentialJob("etl", "").Workspace(v1alpha1.WorkspaceDelete).
		Step("extract", shellScript("seq 42 > /workspace/rows; printf 42 > /dev/termination-log"), testbuilder.RecordOutput()).
		Step("load", shellScript(`echo "$STEP_EXTRACT_OUTPUT rows announced, $(wc -l < /workspace/rows) found"`)).
		Obj())
	s.waitForPhase(v1alpha1.PhaseCompleted)
	if output := s.stepStatus("extract").Output; output != "42" {
		t.Errorf("output %q", output)
	}
	if logs := s.readLogs(s.listPods(&s.listJobs()[1])[0].Name, "load"); logs != "42 rows announced, 42 found\n" {
		t.Errorf("logs %q", logs)
	}
}

// eventLogScript records its starts and ends in the workspace. It exits by itself only when it runs for
// the second time.
const eventLogScript = `
cd /workspace
trap 'echo ended >> history; exit 143' TERM
echo started | tee -a history
[ $(grep -c started history) = 2 ] && exit 0
sleep 3600 & wait`

func testImmediateSuspension(t *testing.T) {
	s := createSequence(t, testbuilder.SequentialJob("suspended", "").Workspace(v1alpha1.WorkspaceDelete).SuspendImmediately().
		Step("write", shellScript(eventLogScript)).
		Step("read", shellScript("tr '\\n' ' ' < /workspace/history > /dev/termination-log"), testbuilder.RecordOutput()).
		Obj())
	pod := s.waitForRunningPod("write")
	requireNoError(t, s.patchSequence(func(sj *v1alpha1.SequentialJob) { sj.Spec.Suspend = true }))
	waitUntilDeleted(t, pod)
	s.waitForPhase(v1alpha1.PhaseSuspended)
	s.waitForNoFinalizer()
	requireNoError(t, s.patchSequence(func(sj *v1alpha1.SequentialJob) { sj.Spec.Suspend = false }))
	s.waitForPhase(v1alpha1.PhaseCompleted)
	if diary := s.stepStatus("read").Output; diary != "started ended started " {
		t.Errorf("history %q", diary)
	}
}

func testEvictionOfAGracefulStep(t *testing.T) {
	graceful := strings.ReplaceAll(eventLogScript, "exit 143", "exit 0")
	s := createSequence(t, testbuilder.SequentialJob("drained", "").Workspace(v1alpha1.WorkspaceDelete).
		Step("write", shellScript(graceful)).
		Step("read", shellScript("tr '\\n' ' ' < /workspace/history > /dev/termination-log"), testbuilder.RecordOutput()).
		Obj())
	pod := s.waitForRunningPod("write")
	poll.Until(t, "the program to handle SIGTERM", func() bool { return strings.Contains(s.readLogs(pod.Name, "write"), "started") })
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	requireNoError(t, clientset.PolicyV1().Evictions(pod.Namespace).Evict(t.Context(), eviction))
	s.waitForPhase(v1alpha1.PhaseCompleted)
	if history, attempt := s.stepStatus("read").Output, s.stepStatus("write").Attempt; history != "started ended started " || attempt != 2 {
		t.Errorf("history %q after %d attempts", history, attempt)
	}
}

func testSequenceDeletion(t *testing.T) {
	s := createSequence(t, testbuilder.SequentialJob("deleted", "").
		Step("a", shellScript("trap 'echo received SIGTERM; sleep 2; echo ended; exit 143' TERM; echo started; sleep 3600 & wait")).
		Step("b", shellScript("true")).
		Obj())
	pod := s.waitForRunningPod("a")
	follow, err := clientset.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Follow: true}).Stream(t.Context())
	requireNoError(t, err)
	defer follow.Close()
	started := make([]byte, len("started\n"))
	_, err = io.ReadFull(follow, started) // the trap is set by then
	requireNoError(t, err)

	s.deleteSequence()
	poll.Until(t, "the SequentialJob to be deleted", func() bool { return !objectExists(t, s.sj) })
	if objectExists(t, pod) {
		t.Error("the SequentialJob was deleted before the Pod of its step")
	}
	rest, err := io.ReadAll(follow)
	requireNoError(t, err)
	if string(rest) != "received SIGTERM\nended\n" {
		t.Errorf("the step's last output is %q", rest)
	}
}
