//go:build e2e

package e2e

import (
	"io"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
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

// eventLogScript records its starts and ends in the workspace. It exits by itself only when it runs for
// the second time.
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
			Step("read", shellScript("tr '\\n' ' ' < /workspace/history > /dev/termination-log"), testbuilder.RecordOutput()).
			Obj())
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
			MatchConditions: []admissionregistrationv1.MatchCondition{{
				Name: "meshed", Expression: `"e2e-mesh" in object.metadata.?labels.orValue({})`,
			}},
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
		Step("b", shellScript("true")).
		Obj())
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
		Step("test", shellScript("echo never")).
		Finally("report", shellScript("echo reported")).
		Obj()
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
