//go:build e2e

package e2e

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
func untilReleased() testbuilder.StepOption {
	return shellScript("sleep 3600 || true")
}

// sequenceTest follows one SequentialJob.
type sequenceTest struct {
	t  *testing.T
	sj *v1alpha1.SequentialJob
}

// createSequence creates the SequentialJob in the watched namespace.
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

// restrictedPodSecurityContext returns the Pod settings that the Pod Security Standard restricted requires.
func restrictedPodSecurityContext() *corev1.PodSecurityContext {
	return &corev1.PodSecurityContext{
		RunAsNonRoot: new(true), RunAsUser: new(int64(65532)), FSGroup: new(int64(65532)),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
}

// restrictedSecurityContext returns the container settings that the Pod Security Standard restricted requires.
func restrictedSecurityContext() *corev1.SecurityContext {
	return &corev1.SecurityContext{AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}
}

func (s *sequenceTest) readSequence() *v1alpha1.SequentialJob {
	s.t.Helper()
	require.NoError(s.t, cluster.Get(s.t.Context(), client.ObjectKeyFromObject(s.sj), s.sj))
	return s.sj
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
		return slices.IndexFunc(s.sj.Spec.Containers, func(step v1alpha1.Step) bool {
			return step.Name == job.Labels[v1alpha1.LabelStep]
		})
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

func (s *sequenceTest) readLogs(pod, container string) string {
	s.t.Helper()
	return readLog(s.t, s.sj.Namespace, pod, container)
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
		poll.Until(t, "the program to handle SIGTERM", func() bool { return strings.Contains(s.readLogs(pod.Name, "write"), "started") })
		eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
		require.NoError(t, clientset.PolicyV1().Evictions(pod.Namespace).Evict(t.Context(), eviction))
		s.waitForPhase(v1alpha1.PhaseCompleted)
		if history, attempt := s.stepStatus("read").Output, s.stepStatus("write").Attempt; history != "started ended started " || attempt != 2 {
			t.Errorf("history %q after %d attempts", history, attempt)
		}
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

func testStartDeadlineBesideASidecar(t *testing.T) {
	template := corev1.PodTemplateSpec{}
	template.Spec.InitContainers = []corev1.Container{
		{Name: "prepare", Image: busyboxImage, Command: []string{"true"}, SecurityContext: restrictedSecurityContext()},
		{
			Name: "proxy", Image: busyboxImage, Command: []string{"sleep", "3600"}, SecurityContext: restrictedSecurityContext(),
			RestartPolicy: new(corev1.ContainerRestartPolicyAlways),
		},
	}
	s := createSequence(t, testbuilder.SequentialJob("stuck-beside", "").Template(template).
		Step("a", testbuilder.StepImage("registry.invalid/nothing:1"), testbuilder.StepStartDeadline(60)).Obj())
	s.waitForPhase(v1alpha1.PhaseFailed)
	step := s.stepStatus("a")
	if step.Reason != v1alpha1.ReasonStartDeadlineExceeded || !strings.Contains(step.Message, "Image") ||
		!strings.Contains(step.Message, "registry.invalid/nothing:1") {
		t.Errorf("%s: %s", step.Reason, step.Message)
	}
	took := step.CompletionTime.Sub(step.StartTime.Time)
	require.True(t, took >= time.Minute, "it failed after %v", took)
}

func testContainerThatAPolicyAdds(t *testing.T) {
	const name = "e2e-mesh"
	policy := &admissionregistrationv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
				},
			}}},
			MatchConditions:    []admissionregistrationv1.MatchCondition{{Name: "meshed", Expression: `"e2e-mesh" in object.metadata.?labels.orValue({})`}},
			ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
			Mutations: []admissionregistrationv1.Mutation{{
				PatchType: admissionregistrationv1.PatchTypeJSONPatch,
				JSONPatch: &admissionregistrationv1.JSONPatch{Expression: `[JSONPatch{op: "add", path: "/spec/containers/-", value: Object.spec.containers{
					name: "mesh-proxy", image: "` + busyboxImage + `", command: ["sh", "-c", "trap 'exit 9' TERM; while :; do sleep 1; done"],
					securityContext: Object.spec.containers.securityContext{allowPrivilegeEscalation: false,
						capabilities: Object.spec.containers.securityContext.capabilities{drop: ["ALL"]}}}}]`},
			}},
		},
	}
	binding := &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name},
	}
	createUntilEnd(t, policy)
	createUntilEnd(t, binding)
	meshed := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{name: "true"}}}
	poll.Until(t, "the policy to have an effect", func() bool {
		probe := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-", Namespace: watchedNamespace, Labels: meshed.Labels}}
		probe.Spec.SecurityContext = restrictedPodSecurityContext()
		probe.Spec.Containers = []corev1.Container{{Name: "a", Image: busyboxImage, SecurityContext: restrictedSecurityContext()}}
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
	if step := s.stepStatus("extract"); step.Phase != v1alpha1.StepSucceeded || step.Output != "42" {
		t.Errorf("step extract is %s, with output %q", step.Phase, step.Output)
	}
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

// createLogArchive creates a claim, and a ServiceAccount that may read logs, both with this name.
func createLogArchive(t *testing.T, name string) {
	t.Helper()
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
	kubelet := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "kubelet-", Namespace: privilegedNamespace}}
	kubelet.Spec = corev1.PodSpec{
		HostPID: true, RestartPolicy: corev1.RestartPolicyNever,
		Containers: []corev1.Container{{Name: "stop", Image: busyboxImage, Command: []string{"sh", "-ec", fmt.Sprintf(`
for p in /proc/[0-9]*; do # one program has all parts of Kubernetes
	[ "$(cat $p/comm)" = kubernetes ] && tr '\0' ' ' < $p/cmdline | grep -q '^[^ ]* kubelet ' && pid=${p#/proc/}
done
while [ "$(date +%%s)" -lt %d ]; do sleep 0.2; done
kill -STOP $pid
sleep %s
kill -CONT $pid`, lost.Unix(), strconv.Itoa(int(kubeletReturns.Seconds())))}}},
	}
	require.NoError(t, cluster.Create(t.Context(), kubelet))
	poll.Until(t, "the Pod that stops the kubelet", func() bool { return objectExists(t, kubelet) && kubelet.Status.Phase == corev1.PodRunning })
	now := time.Now()
	require.True(t, !now.After(lost), "the Pods took %v longer than this test expects to start", now.Sub(lost))
	deletionRequested := func(s *sequenceTest) bool {
		for _, job := range s.listJobs() {
			for _, pod := range s.listPods(&job) {
				if !pod.DeletionTimestamp.IsZero() {
					return true
				}
			}
		}
		return false
	}
	poll.Until(t, "the control plane to request the deletion of the Pods", func() bool {
		for _, c := range cells {
			if !deletionRequested(c.s) {
				return false
			}
		}
		return true
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
			if runs := c.s.stepStatus("count").Output; (runs != "1") != c.again {
				t.Errorf("the program ran %s times, want more than one: %v: %+v", runs, c.again, c.s.sj.Status.Steps)
			}
		})
	}
}
