//go:build e2e

package e2e

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
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

// busyboxImage is an image that the node has.
const busyboxImage = "docker.io/library/busybox:1.37"

func shellScript(text string) testbuilder.StepOption {
	return testbuilder.ChangeContainer(func(c *corev1.Container) {
		c.Image = busyboxImage
		c.Command = []string{"sh", "-ec", text}
	})
}

// untilReleased makes a step run until releaseStep is called.
func untilReleased() testbuilder.StepOption { return shellScript("sleep 3600 || true") }

type sequenceTest struct {
	t  *testing.T
	sj *v1alpha1.SequentialJob
}

func createSequence(t *testing.T, sj *v1alpha1.SequentialJob) *sequenceTest {
	t.Helper()
	return createSequenceIn(t, watchedNamespace, sj)
}

func createSequenceIn(t *testing.T, ns string, sj *v1alpha1.SequentialJob) *sequenceTest {
	t.Helper()
	s := &sequenceTest{t: t, sj: prepareSequence(ns, sj)}
	createUntilEnd(t, s.sj)
	return s
}

// prepareSequence completes a SequentialJob: its Pods satisfy the Pod Security Standard restricted.
func prepareSequence(ns string, sj *v1alpha1.SequentialJob) *v1alpha1.SequentialJob {
	sj.ObjectMeta = metav1.ObjectMeta{GenerateName: sj.Name + "-", Namespace: ns}
	if sj.Spec.Template == nil {
		sj.Spec.Template = &v1alpha1.PodTemplate{}
	}
	pod := &sj.Spec.Template.Spec
	pod.SecurityContext = restrictedPodSecurityContext()
	pod.TerminationGracePeriodSeconds = new(int64(5))
	pod.Containers = []corev1.Container{{Name: "step", SecurityContext: restrictedSecurityContext()}}
	return sj
}

func restrictedPodSecurityContext() *corev1.PodSecurityContext {
	return &corev1.PodSecurityContext{
		RunAsNonRoot: new(true), RunAsUser: new(int64(65532)), FSGroup: new(int64(65532)),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
}

// restrictedPod returns a Pod that satisfies the Pod Security Standard restricted, with one container.
func restrictedPod(container, image string, command ...string) corev1.PodSpec {
	return corev1.PodSpec{
		AutomountServiceAccountToken: new(false), TerminationGracePeriodSeconds: new(int64(1)), SecurityContext: restrictedPodSecurityContext(),
		Containers: []corev1.Container{{Name: container, Image: image, Command: command, SecurityContext: restrictedSecurityContext()}},
	}
}

func restrictedSecurityContext() *corev1.SecurityContext {
	return &corev1.SecurityContext{AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}
}

func (s *sequenceTest) readSequence() *v1alpha1.SequentialJob {
	return get(s.t, s.sj, client.ObjectKeyFromObject(s.sj))
}

func (s *sequenceTest) waitUntil(what string, condition func(sj *v1alpha1.SequentialJob) bool) {
	s.t.Helper()
	poll.Until(s.t, what, func() bool { return condition(s.readSequence()) })
}

func (s *sequenceTest) waitForPhase(phase v1alpha1.SequentialJobPhase) {
	s.t.Helper()
	s.waitUntil(s.sj.Name+" to be "+string(phase), func(sj *v1alpha1.SequentialJob) bool { return sj.Status.Phase == phase })
}

// stepStatus returns the last read status of a step.
func (s *sequenceTest) stepStatus(name string) *v1alpha1.StepStatus {
	for i := range s.sj.Status.Steps {
		if s.sj.Status.Steps[i].Name == name {
			return &s.sj.Status.Steps[i]
		}
	}
	return &v1alpha1.StepStatus{}
}

func (s *sequenceTest) patchSequence(change func(sj *v1alpha1.SequentialJob)) error {
	s.t.Helper()
	before := s.readSequence().DeepCopy()
	change(s.sj)
	return cluster.Patch(s.t.Context(), s.sj, client.MergeFrom(before))
}

// deleteSequence deletes the SequentialJob as kubectl does.
func (s *sequenceTest) deleteSequence() {
	s.t.Helper()
	require.NoError(s.t, cluster.Delete(s.t.Context(), s.sj, client.PropagationPolicy(metav1.DeletePropagationBackground)))
}

// listJobs returns the Jobs of the SequentialJob, in the order of their steps.
func (s *sequenceTest) listJobs() []batchv1.Job {
	s.t.Helper()
	var list batchv1.JobList
	require.NoError(s.t, cluster.List(s.t.Context(), &list, client.InNamespace(s.sj.Namespace)))
	owned := slices.DeleteFunc(list.Items, func(job batchv1.Job) bool { return !metav1.IsControlledBy(&job, s.sj) })
	index := func(job batchv1.Job) int {
		return slices.IndexFunc(s.sj.Spec.Containers, func(step v1alpha1.Step) bool { return step.Name == job.Labels[v1alpha1.LabelStep] })
	}
	slices.SortFunc(owned, func(a, b batchv1.Job) int { return cmp.Compare(index(a), index(b)) })
	return owned
}

func (s *sequenceTest) listPods(job *batchv1.Job) []corev1.Pod {
	s.t.Helper()
	return podsWith(s.t, job.Namespace, map[string]string{batchv1.ControllerUidLabel: string(job.UID)})
}

func (s *sequenceTest) waitForRunningPod(step string) *corev1.Pod {
	s.t.Helper()
	var found *corev1.Pod
	poll.Until(s.t, "a running Pod of step "+step, func() bool {
		for _, job := range s.listJobs() {
			if job.Labels[v1alpha1.LabelStep] != step {
				continue
			}
			for _, pod := range s.listPods(&job) {
				if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp.IsZero() {
					found = &pod
				}
			}
		}
		return found != nil
	})
	return found
}

func (s *sequenceTest) releaseStep(step string) {
	s.t.Helper()
	sendSignal(s.t, s.waitForRunningPod(step), "sleep", "TERM")
}

// wantEachStepOnce checks that each step ran in one Pod of one Job, after the previous step had ended.
func (s *sequenceTest) wantEachStepOnce() {
	s.t.Helper()
	jobs := s.listJobs()
	if len(jobs) != len(s.sj.Spec.Containers) {
		s.t.Errorf("%s has %d Jobs for %d steps", s.sj.Name, len(jobs), len(s.sj.Spec.Containers))
		return
	}
	var ended metav1.Time
	for i, job := range jobs {
		require.True(s.t, job.Labels[v1alpha1.LabelStep] == s.sj.Spec.Containers[i].Name,
			"%s: Job %d belongs to step %s", s.sj.Name, i, job.Labels[v1alpha1.LabelStep])
		pods := s.listPods(&job)
		if len(pods) != 1 || job.Status.Succeeded != 1 || job.Status.Failed != 0 {
			s.t.Errorf("%s: Job %s has %d Pods, %d succeeded, %d failed", s.sj.Name, job.Name, len(pods), job.Status.Succeeded, job.Status.Failed)
			return
		}
		ran := pods[0].Status.ContainerStatuses[0].State.Terminated
		require.True(s.t, !ran.StartedAt.Before(&ended),
			"%s: step %d started at %v, before the previous step ended at %v", s.sj.Name, i, ran.StartedAt, ended)
		ended = ran.FinishedAt
	}
}

// eventLogScript records its starts and ends in the workspace. It exits by itself only when it runs for the second time.
const eventLogScript = `
cd /workspace
trap 'echo ended >> history; exit 0' TERM
echo started | tee -a history
[ $(grep -c started history) = 2 ] && exit 0
sleep 3600 & wait`

func testExitCodeOfARestartedContainer(t *testing.T) {
	onFailure := corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyOnFailure}}
	s := createSequence(t, testbuilder.SequentialJob("migrate", "").Template(onFailure).
		Step("migrate", shellScript("printf 'no such table: users' > /dev/termination-log; exit 7")).Obj())
	s.waitForPhase(v1alpha1.PhaseFailed)
	const want = "container migrate exited with code 7: no such table: users"
	step := s.stepStatus("migrate")
	require.True(t, step.Message == want && step.ExitCode != nil && *step.ExitCode == 7, "message %q, exit code %v", step.Message, step.ExitCode)
}

func testEviction(policy corev1.RestartPolicy) func(*testing.T) {
	return func(t *testing.T) {
		template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: policy}}
		s := createSequence(t, testbuilder.SequentialJob("drained", "").Workspace(v1alpha1.WorkspaceDelete).Template(template).
			Step("write", shellScript(eventLogScript)).
			Step("read", shellScript("tr '\\n' ' ' < /workspace/history > /dev/termination-log"), testbuilder.RecordOutput()).Obj())
		pod := s.waitForRunningPod("write")
		poll.Until(t, "the program to handle SIGTERM", func() bool { return strings.Contains(readLog(t, pod.Namespace, pod.Name, "write"), "started") })
		eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
		require.NoError(t, clientset.PolicyV1().Evictions(pod.Namespace).Evict(t.Context(), eviction))
		s.waitForPhase(v1alpha1.PhaseCompleted)
		history, attempt := s.stepStatus("read").Output, s.stepStatus("write").Attempt
		require.True(t, history == "started ended started " && attempt == 2, "history %q after %d attempts", history, attempt)
	}
}

func testImmediateSuspension(t *testing.T) {
	s := createSequence(t, testbuilder.SequentialJob("suspended", "").Workspace(v1alpha1.WorkspaceDelete).SuspendImmediately().
		Step("write", shellScript(eventLogScript)).
		Step("read", shellScript("tr '\\n' ' ' < /workspace/history > /dev/termination-log"), testbuilder.RecordOutput()).Obj())
	pod := s.waitForRunningPod("write")
	require.NoError(t, s.patchSequence(func(sj *v1alpha1.SequentialJob) { sj.Spec.Suspend = true }))
	waitUntilDeleted(t, pod)
	s.waitForPhase(v1alpha1.PhaseSuspended)
	require.NoError(t, s.patchSequence(func(sj *v1alpha1.SequentialJob) { sj.Spec.Suspend = false }))
	s.waitForPhase(v1alpha1.PhaseCompleted)
	require.Equal(t, "started ended started ", s.stepStatus("read").Output)
}

// meshPolicy adds a container to each Pod with the label e2e-mesh, as the policies of service meshes do.
const meshPolicy = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: e2e-mesh}
spec:
  reinvocationPolicy: Never
  matchConstraints: {resourceRules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods]}]}
  matchConditions: [{name: meshed, expression: '"e2e-mesh" in object.metadata.?labels.orValue({})'}]
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: |
        [JSONPatch{op: "add", path: "/spec/containers/-", value: Object.spec.containers{
          name: "mesh-proxy", image: "` + busyboxImage + `", command: ["sh", "-c", "trap 'exit 9' TERM; while :; do sleep 1; done"],
          securityContext: Object.spec.containers.securityContext{allowPrivilegeEscalation: false,
            capabilities: Object.spec.containers.securityContext.capabilities{drop: ["ALL"]}}}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: e2e-mesh}
spec: {policyName: e2e-mesh}
`

func testContainerThatAPolicyAdds(t *testing.T) {
	const name = "e2e-mesh"
	applyManifest(t, watchedNamespace, meshPolicy)
	remove := newKubectlCommand(context.Background(), "delete", "mutatingadmissionpolicybinding,mutatingadmissionpolicy", name)
	t.Cleanup(func() { require.NoError(t, remove.Run()) })
	meshed := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{name: "true"}}}
	poll.Until(t, "the policy to have an effect", func() bool {
		metadata := metav1.ObjectMeta{GenerateName: "probe-", Namespace: watchedNamespace, Labels: meshed.Labels}
		probe := &corev1.Pod{ObjectMeta: metadata, Spec: restrictedPod("a", busyboxImage)}
		return cluster.Create(t.Context(), probe, client.DryRunAll) == nil && len(probe.Spec.Containers) == 2
	})
	s := createSequence(t, testbuilder.SequentialJob("meshed", "").Template(meshed).
		Step("extract", shellScript("printf 42 > /dev/termination-log"), testbuilder.RecordOutput()).
		Step("load", shellScript(`test "$STEP_EXTRACT_OUTPUT" = 42; exit 3`)).Obj())
	poll.Until(t, "the step to name the container", func() bool {
		s.readSequence()
		return s.sj.Status.Reason == v1alpha1.ReasonContainerStillRuns
	})
	require.Equal(t, "container extract exited with 0; container mesh-proxy still runs", s.stepStatus("extract").Message)
	require.NoError(t, s.patchSequence(func(sj *v1alpha1.SequentialJob) { sj.Spec.Template.EndWithStep = true }))
	s.waitForPhase(v1alpha1.PhaseFailed)
	step := s.stepStatus("extract")
	require.True(t, step.Phase == v1alpha1.StepSucceeded && step.Output == "42", "step extract is %s, with output %q", step.Phase, step.Output)
	if step := s.stepStatus("load"); step.Message != "container load exited with code 3" || *step.ExitCode != 3 {
		t.Errorf("message %q", step.Message)
	}
}

func testSequenceDeletion(t *testing.T) {
	s := createSequence(t, testbuilder.SequentialJob("deleted", "").
		Step("a", shellScript("trap 'echo received SIGTERM; sleep 2; echo ended; exit 143' TERM; echo started; sleep 3600 & wait")).
		Step("b", shellScript("true")).Obj())
	pod := s.waitForRunningPod("a")
	follow, err := clientset.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Follow: true}).Stream(t.Context())
	require.NoError(t, err)
	defer follow.Close()
	started := make([]byte, len("started\n"))
	_, err = io.ReadFull(follow, started) // the trap is set by then
	require.NoError(t, err)

	s.deleteSequence()
	poll.Until(t, "the SequentialJob to be deleted", func() bool { return !objectExists(t, s.sj) })
	require.True(t, !objectExists(t, pod), "the SequentialJob was deleted before the Pod of its step")
	rest, err := io.ReadAll(follow)
	require.NoError(t, err)
	require.True(t, string(rest) == "received SIGTERM\nended\n", "the step's last output is %q", rest)
}

func createLogArchive(t *testing.T, name string) {
	metadata := metav1.ObjectMeta{Name: name, Namespace: watchedNamespace}
	require.NoError(t, cluster.Create(t.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: metadata, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}))
	require.NoError(t, cluster.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metadata}))
	grantRole(t, watchedNamespace, name,
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods/log"}, Verbs: []string{"get"}})
}

func testArchivedLogs(t *testing.T) {
	const archive = "log-archive"
	createLogArchive(t, archive)
	retry := testbuilder.WithStepOptions(func(o *v1alpha1.StepOptions) {
		o.Retry = &v1alpha1.StepRetry{Retry: v1alpha1.Retry{Limit: new(int32(1)), Backoff: &v1alpha1.Duration{Duration: metav1.Duration{Duration: time.Second}}}}
	})
	sj := testbuilder.SequentialJob("archived", "").TTLAfterFinished(0).
		Step("build", shellScript(`echo "building for $HOSTNAME"; [ -e /etc/passwd.d ]`), retry).
		Step("test", shellScript("echo never")).Finally("report", shellScript("echo reported")).Obj()
	sj.Spec.Archive = &v1alpha1.SequenceArchive{ServiceAccountName: archive, Archive: v1alpha1.Archive{ClaimRef: &v1alpha1.LocalReference{Name: archive}}}
	s := createSequence(t, sj)
	location := watchedNamespace + "/" + s.sj.Name + "/" + string(s.sj.UID) + "/run-1"
	waitUntilDeleted(t, s.sj)

	reader := testbuilder.SequentialJob("reader", "").Step("read", testbuilder.RecordOutput(), shellScript(
		"cd /logs/"+location+"; find . -type f | sort | sed 's#/archived-[^/]*/#/POD/#'; cat build/attempt-1/*/build.log build/attempt-2/*/build.log report/attempt-1/*/report.log summary.json"),
		shellOutput()).Obj()
	reader.Spec.Template = &v1alpha1.PodTemplate{}
	reader.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "logs", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: archive},
	}}}
	read := createSequence(t, reader)
	read.waitForPhase(v1alpha1.PhaseCompleted)
	output := read.stepStatus("read").Output
	for _, want := range []string{
		"./build/attempt-1/POD/build.log\n./build/attempt-2/POD/build.log\n./report/attempt-1/POD/report.log\n./summary.json\n",
		"building for archived-", "reported\n", `"problems": []`,
	} {
		require.Contains(t, output, want)
	}
	count := strings.Count(output, "building for archived-")
	require.True(t, count == 2, "%d logs of the attempts:\n%s", count, output)
}

// shellOutput mounts the archive and makes what the script prints the output of the step.
func shellOutput() testbuilder.StepOption {
	return testbuilder.ChangeContainer(func(c *corev1.Container) {
		c.Command[2] = "exec > /dev/termination-log; " + c.Command[2]
		c.VolumeMounts = []corev1.VolumeMount{{Name: "logs", MountPath: "/logs", ReadOnly: true}}
	})
}

// The times of a lost node, from the moment at which its kubelet stops. The control plane requests the deletion of its Pods after
// the grace period of nodes, 40 to 50 seconds, which no Pod learns before the kubelet returns.
const (
	endsBeforeRequest = 15 * time.Second
	endsAfterRequest  = 90 * time.Second
	kubeletReturns    = 105 * time.Second
)

// TestNodeLoss stops the kubelet of the only node while steps run, until the control plane has requested the deletion of their Pods. A step whose
// program ended by itself before the request is done. Each other step is interrupted, whatever its exit code, and runs again.
func TestNodeLoss(t *testing.T) {
	if os.Getenv("NODE_LOSS") == "" {
		t.Skip("this test stops the kubelet: use make soak SOAK_PARTS=node-loss")
	}
	// Time for all Pods to start.
	lost := time.Now().Add(2 * time.Minute).Truncate(time.Second)
	programs := map[string]struct {
		script string
		lasts  time.Duration // until it ends by itself
		again  bool          // it runs again
	}{
		"it ends with 0 before the request":  {lasts: endsBeforeRequest},
		"it ends with 0 after the request":   {lasts: endsAfterRequest, again: true},
		"SIGTERM ends it, with the code 0":   {script: "trap 'exit 0' TERM", lasts: time.Hour, again: true},
		"SIGTERM ends it, with the code 143": {script: "trap 'exit 143' TERM", lasts: time.Hour, again: true},
		"it ignores SIGTERM":                 {script: "trap '' TERM", lasts: time.Hour, again: true},
	}
	type cell struct {
		name  string
		s     *sequenceTest
		again bool
	}
	var cells []cell
	for name, program := range programs {
		for _, policy := range []corev1.RestartPolicy{corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure} {
			template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: policy, TerminationGracePeriodSeconds: new(int64(5))}}
			for _, taint := range []string{corev1.TaintNodeUnreachable, corev1.TaintNodeNotReady} {
				template.Spec.Tolerations = append(template.Spec.Tolerations, corev1.Toleration{
					Key: taint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(1)),
				})
			}
			script := fmt.Sprintf(`echo started >> /workspace/runs
[ "$(wc -l < /workspace/runs)" -gt 1 ] && exit 0
%s
while [ "$(date +%%s)" -lt %d ]; do sleep 1 & wait $! || true; done`, program.script, lost.Add(program.lasts).Unix())
			s := createSequence(t, testbuilder.SequentialJob("lost", "").Workspace(v1alpha1.WorkspaceDelete).Template(template).
				Step("work", shellScript(script)).Step("count", shellScript(`printf %s "$(wc -l < /workspace/runs)" > /dev/termination-log`), testbuilder.RecordOutput()).Obj())
			cells = append(cells, cell{name + ", with the restart policy " + string(policy), s, program.again})
		}
	}
	for _, c := range cells {
		c.s.waitForRunningPod("work")
	}
	kubelet := newPrivilegedPod("kubelet-", fmt.Sprintf(`set -e
for p in /proc/[0-9]*; do # one program has all parts of Kubernetes
	[ "$(cat $p/comm)" = kubernetes ] && tr '\0' ' ' < $p/cmdline | grep -q '^[^ ]* kubelet ' && pid=${p#/proc/}
done
while [ "$(date +%%s)" -lt %d ]; do sleep 0.2; done
kill -STOP $pid
sleep %s
kill -CONT $pid`, lost.Unix(), strconv.Itoa(int(kubeletReturns.Seconds()))))
	require.NoError(t, cluster.Create(t.Context(), kubelet))
	poll.Until(t, "the Pod that stops the kubelet", func() bool { return objectExists(t, kubelet) && kubelet.Status.Phase == corev1.PodRunning })
	now := time.Now()
	require.True(t, !now.After(lost), "the Pods took %v longer than this test expects to start", now.Sub(lost))
	deletionRequested := func(c cell) bool {
		return slices.ContainsFunc(c.s.listJobs(), func(job batchv1.Job) bool {
			return slices.ContainsFunc(c.s.listPods(&job), func(pod corev1.Pod) bool { return !pod.DeletionTimestamp.IsZero() })
		})
	}
	poll.Until(t, "the control plane to request the deletion of the Pods", func() bool {
		return !slices.ContainsFunc(cells, func(c cell) bool { return !deletionRequested(c) })
	})
	after := time.Since(lost)
	t.Logf("the deletion of all Pods was requested %v after the kubelet stopped", after.Round(time.Second))
	require.True(t, after <= endsAfterRequest && after >= endsBeforeRequest,
		"this test expects the request %v to %v after the kubelet stopped", endsBeforeRequest, endsAfterRequest)
	for _, c := range cells {
		t.Run(c.name, func(t *testing.T) {
			c.s.t = t
			c.s.waitForPhase(v1alpha1.PhaseCompleted)
			// The second Pod can start while the node still has its taint, and is then interrupted too.
			runs := c.s.stepStatus("count").Output
			require.True(t, (runs != "1") == c.again, "the program ran %s times, want more than one: %v: %+v", runs, c.again, c.s.sj.Status.Steps)
		})
	}
}

const (
	// queueLabel and priorityLabel are the labels with which Kueue admits a Job.
	queueLabel, priorityLabel = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
	urgentPriority            = "urgent" // a WorkloadPriorityClass of examples/kueue/quota.yaml
	// workCPU is what each step and session of these tests requests, and the quota of their ClusterQueues: one of them runs at a time.
	workCPU = "10m"
)

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
	spec := restrictedPod("sleep", busyboxImage, "sleep", "3600")
	spec.RestartPolicy, spec.Containers[0].Resources = corev1.RestartPolicyNever, workResources()
	job.Spec.Template.Spec = spec
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
		names = append(names, list.Items[i].GetName())
	}
	return slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, "job-"+prefix) })
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
	runner := get(t, &v1alpha1.SessionRunner{}, client.ObjectKey{Namespace: ns, Name: shellRunner})
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
	want := "Job " + status.Attempt.JobName + " waits in queue " + queue
	require.True(s.t, ready.Message == want, "the message is %q, want %q", ready.Message, want)
	for kind, want := range map[string]metav1.ConditionStatus{
		v1alpha1.ConditionRunnerStarted: metav1.ConditionFalse, v1alpha1.ConditionBlocked: metav1.ConditionFalse,
	} {
		c := meta.FindStatusCondition(status.Conditions, kind)
		require.True(s.t, c != nil && c.Status == want, "condition %s is %+v, want %s", kind, c, want)
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
		job := get(t, &batchv1.Job{}, client.ObjectKey{Namespace: sessionsNamespace, Name: status.Attempt.JobName})
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
