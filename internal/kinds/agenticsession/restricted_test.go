package agenticsession

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	podsecurity "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// The PodSecurity admission library evaluates the Pods of random sessions and SessionRunners, with
// values as insecure as their types allow. The level restricted must accept all of them.
func TestEveryPodPassesPodSecurityRestricted(t *testing.T) {
	const runs = 2000
	evaluate := restrictedEvaluator(t)
	insecure := (&corev1.PodSpec{Containers: []corev1.Container{{Name: "runner"}}})
	require.True(t, !policy.AggregateCheckResults(evaluate(&metav1.ObjectMeta{}, insecure)).Allowed, "the evaluator accepts an insecure Pod")
	evaluated := 0
	for seed := range uint64(runs) {
		f := randomSpecs{rand.New(rand.NewPCG(seed, 1))}
		s := newScenario(t)
		f.fillSession(&s.Session.Spec)
		f.fillRunner(&s.Runner.Spec)
		if f.randomBool() {
			s.NetworkCheck = testCheck
		}
		decision := s.decideAndRecord()
		if decision.CreateJob == nil {
			continue // refused before a Pod is built
		}
		evaluated++
		template := decision.CreateJob.Spec.Template
		for _, result := range evaluate(&template.ObjectMeta, &template.Spec) {
			require.True(t, result.Allowed, "seed %d: %s: %s", seed, result.ForbiddenReason, result.ForbiddenDetail)
		}
		checkHardened(t, seed, &template.Spec)
	}
	require.True(t, evaluated >= runs/5, "only %d of %d specs led to a Pod", evaluated, runs)
	t.Logf("%d Pods evaluated, of %d specs", evaluated, runs)
}

func restrictedEvaluator(t *testing.T) func(*metav1.ObjectMeta, *corev1.PodSpec) []policy.CheckResult {
	t.Helper()
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	require.NoError(t, err)
	level := podsecurity.LevelVersion{Level: podsecurity.LevelRestricted, Version: podsecurity.LatestVersion()}
	return func(metadata *metav1.ObjectMeta, pod *corev1.PodSpec) []policy.CheckResult {
		return evaluator.EvaluatePod(level, metadata, pod)
	}
}

// docs/agents.md has the manifest.
func TestDaemonSetThatPullsImagesIsRestricted(t *testing.T) {
	manifest, err := os.ReadFile(filepath.Join("..", "..", "..", "examples", "agents", "images.yaml"))
	require.NoError(t, err)
	daemonSet := &appsv1.DaemonSet{}
	require.NoError(t, yaml.UnmarshalStrict(manifest, daemonSet))
	template := &daemonSet.Spec.Template
	require.True(t, len(template.Spec.InitContainers) == 1 && maps.Equal(daemonSet.Spec.Selector.MatchLabels, template.Labels),
		"DaemonSet %+v", daemonSet)
	for _, result := range restrictedEvaluator(t)(&template.ObjectMeta, &template.Spec) {
		require.True(t, result.Allowed, "%s: %s", result.ForbiddenReason, result.ForbiddenDetail)
	}
}

func checkHardened(t *testing.T, seed uint64, pod *corev1.PodSpec) {
	t.Helper()
	fail := func(format string, args ...any) { t.Errorf("seed %d: %s", seed, fmt.Sprintf(format, args...)) }
	if pod.HostNetwork || pod.HostPID || pod.HostIPC || pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
		fail("the Pod shares namespaces of the node, or has a token")
	}
	if len(pod.Containers) != 1 || pod.Containers[0].Name != v1alpha1.RunnerContainer {
		fail("the Pod has unexpected containers")
	}
	for _, containers := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
		for i := range containers {
			c := &containers[i]
			sc := c.SecurityContext
			if sc == nil || !*sc.ReadOnlyRootFilesystem || !*sc.RunAsNonRoot || *sc.Privileged || *sc.AllowPrivilegeEscalation {
				fail("%s: %+v", c.Name, sc)
				continue
			}
			if len(sc.Capabilities.Add) != 0 || len(sc.Capabilities.Drop) != 1 || sc.Capabilities.Drop[0] != "ALL" {
				fail("%s: capabilities %+v", c.Name, sc.Capabilities)
			}
			for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
				request, limit := c.Resources.Requests[name], c.Resources.Limits[name]
				if _, limited := c.Resources.Limits[name]; !limited || request.Cmp(limit) > 0 {
					fail("%s: %s is %s of %s", c.Name, name, request.String(), limit.String())
				}
			}
		}
	}
	temporary := map[string]bool{}
	for i := range pod.InitContainers {
		c := &pod.InitContainers[i]
		at := slices.IndexFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == tempPath })
		if at < 0 && c.Name == checkContainer {
			continue
		}
		if at < 0 {
			fail("%s has no temporary volume", c.Name)
			continue
		}
		want := emptyDirVolume(c.VolumeMounts[at].Name, c.Resources.Limits)
		if temporary[want.Name] || !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return cmp.Equal(v, want) }) {
			fail("%s has no temporary volume of its own size: %+v", c.Name, want)
		}
		temporary[want.Name] = true
	}
	names := map[string]int{}
	for _, variable := range pod.Containers[0].Env {
		names[variable.Name]++
		if names[variable.Name] > 1 {
			fail("%s is set twice", variable.Name)
		}
	}
}

// weaken sets fields of a container that a SessionRunner cannot set.
func weaken(c *corev1.Container) {
	c.SecurityContext = &corev1.SecurityContext{
		Privileged: new(true), AllowPrivilegeEscalation: new(true), RunAsUser: new(int64(0)), ProcMount: new(corev1.UnmaskedProcMount),
		Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_ADMIN"}},
	}
	c.Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
	c.Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Host: "169.254.169.254", Port: intstr.FromInt32(80)}}}
	c.LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Host: "169.254.169.254", Port: intstr.FromInt32(80)}}}
	c.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "db"}}}}
	c.VolumeDevices = []corev1.VolumeDevice{{Name: "disk", DevicePath: "/dev/disk"}}
	c.TerminationMessagePath, c.WorkingDir, c.TTY, c.Stdin = "/workspace/message", "/", true, true
}

// randomSpecs generates random specs.
type randomSpecs struct{ rng *rand.Rand }

func (f randomSpecs) randomBool() bool { return f.rng.IntN(2) == 0 }

func (f randomSpecs) pickOne(of ...string) string { return of[f.rng.IntN(len(of))] }

func (f randomSpecs) randomQuantity() resource.Quantity {
	return resource.MustParse(f.pickOne("0", "1", "10m", "100Mi", "1Gi", "2Gi", "64", "1000Gi"))
}

func (f randomSpecs) randomResources() corev1.ResourceRequirements {
	list := func() corev1.ResourceList {
		all := corev1.ResourceList{}
		for _, name := range []string{"cpu", "memory", "ephemeral-storage", "nvidia.com/gpu", "hugepages-2Mi"} {
			if f.rng.IntN(6) == 0 {
				all[corev1.ResourceName(name)] = f.randomQuantity()
			}
		}
		return all
	}
	return corev1.ResourceRequirements{Requests: list(), Limits: list()}
}

func (f randomSpecs) fillSession(spec *v1alpha1.AgenticSessionSpec) {
	spec.Interactive = f.randomBool()
	spec.Image = f.pickOne("", "", "runner:1", "other:1", "evil:1")
	if f.randomBool() {
		spec.EnvironmentVariables = map[string]v1alpha1.EnvironmentValue{
			f.pickOne("A", "HTTPS_PROXY", "RUNNER_TYPE"): v1alpha1.EnvironmentValue(f.pickOne("", "$(HOME)", "\n", strings.Repeat("x", 9999))),
		}
	}
	if f.rng.IntN(20) == 0 {
		spec.EnvironmentVariables = map[string]v1alpha1.EnvironmentValue{f.pickOne("PATH", "LD_PRELOAD", "AGENTIC_X"): "x"}
	}
	if f.randomBool() {
		spec.SecretMounts = []v1alpha1.SecretMount{{LocalReference: v1alpha1.LocalReference{Name: f.pickOne("a", "b.c")}, MountPath: f.pickOne("", "/secrets/x")}}
	}
	if f.randomBool() {
		spec.EnvFrom = []corev1.EnvFromSource{{Prefix: f.pickOne("", "X_"), SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "a"}}}}
	}
	if f.rng.IntN(4) == 0 {
		resources := f.randomResources()
		spec.Resources = &resources
	}
	if f.randomBool() {
		spec.Workspace = &v1alpha1.WorkspaceClaim{Retention: v1alpha1.WorkspaceRetention(f.pickOne("", "Delete", "Retain"))}
		if f.rng.IntN(4) == 0 {
			size := f.randomQuantity()
			spec.Workspace.Size = &size
		}
	}
	spec.Repos = []v1alpha1.SessionRepo{{GitSource: v1alpha1.GitSource{URL: "https://git.example/b"}, AutoPush: f.randomBool()}}
}

func (f randomSpecs) fillRunner(spec *v1alpha1.SessionRunnerSpec) {
	spec.Allowed.Images = []string{"other:1"}
	spec.Allowed.Secrets = []v1alpha1.SessionSource{testbuilder.Source("a", "k", f.pickOne("l", "m.n", "B", "PATH")), testbuilder.Source("b.c")}
	spec.ActivityLease = f.randomBool()
	if f.randomBool() {
		testbuilder.RunnerPod(spec).SecurityContext.RunAsUser, testbuilder.RunnerPod(spec).SecurityContext.RunAsGroup = new(int64(1+f.rng.IntN(99))), new(int64(1+f.rng.IntN(99)))
	}
	if f.randomBool() {
		testbuilder.RunnerContainer(spec).Env = []corev1.EnvVar{{Name: f.pickOne("HTTPS_PROXY", "B", "HOME"), Value: "x"}, {Name: "C", ValueFrom: &corev1.EnvVarSource{
			SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "a"}, Key: "b"},
		}}}
	}
	if f.rng.IntN(4) == 0 {
		testbuilder.RunnerContainer(spec).Resources = f.randomResources()
		spec.Limits.MaxResources = f.randomResources().Limits
	}
	for i := range f.rng.IntN(4) {
		sidecar := testbuilder.Sidecar(fmt.Sprintf("sidecar-%d", i), "x")
		if f.randomBool() {
			sidecar = testbuilder.SidecarWithWorkspace(sidecar.Name, "x")
		}
		weaken(&sidecar)
		if f.rng.IntN(3) == 0 {
			sidecar.Resources = f.randomResources()
		}
		if f.randomBool() {
			sidecar.StartupProbe = &corev1.Probe{TerminationGracePeriodSeconds: new(int64(3600)), ProbeHandler: corev1.ProbeHandler{
				HTTPGet: &corev1.HTTPGetAction{Host: "169.254.169.254", Port: intstr.FromInt32(80)},
			}}
		}
		if f.randomBool() {
			sidecar.StartupProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Host: "10.0.0.1", Port: intstr.FromInt32(80)}}}
		}
		testbuilder.RunnerPod(spec).InitContainers = append(testbuilder.RunnerPod(spec).InitContainers, sidecar)
	}
	if f.randomBool() {
		testbuilder.RunnerPod(spec).ServiceAccountName = f.pickOne("", "model-caller")
		testbuilder.MountVolume(spec, "tokens", "/tokens", testbuilder.Tokens(corev1.ServiceAccountTokenProjection{
			Audience: f.pickOne("cloud.example", "https://kubernetes.default.svc"), Path: "a",
		}))
	}
	if f.randomBool() {
		testbuilder.RunnerPod(spec).RuntimeClassName = new("gvisor")
	}
	if f.randomBool() {
		spec.Git = &v1alpha1.SessionGit{SecretRef: &v1alpha1.LocalReference{Name: "forge"}, Repositories: []string{"git.example/**"}}
		spec.Archive = []*v1alpha1.SessionArchive{nil, archiveInBucket, archiveInClaim}[f.rng.IntN(3)].DeepCopy()
		spec.Model = &v1alpha1.SessionModel{Provider: f.pickOne("Anthropic", "OpenAI", "Google"), SecretRef: v1alpha1.LocalReference{Name: "provider"}}
	}
	pod := testbuilder.RunnerPod(spec)
	pod.HostNetwork, pod.HostPID, pod.HostIPC, pod.ShareProcessNamespace, pod.AutomountServiceAccountToken = true, true, true, new(true), new(true)
	pod.SecurityContext.RunAsNonRoot, pod.SecurityContext.Sysctls = new(false), []corev1.Sysctl{{Name: "kernel.msgmax", Value: "1"}}
	pod.SecurityContext.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}
	weaken(&pod.Containers[0])
}

// For any object and status, including manually edited ones, Decide does not panic, does not repeat
// questions, and hardens every Pod.
func FuzzDecideNeverPanics(f *testing.F) {
	session := &v1alpha1.AgenticSession{}
	session.Name, session.Spec.Prompt = "a", "b"
	job := &batchv1.Job{}
	for _, seed := range []v1alpha1.SessionPhase{"", v1alpha1.SessionRunning} {
		session.Status.Phase = seed
		session.Status.Attempt.JobName = "a-r1-a1"
		object, err := json.Marshal(session)
		require.NoError(f, err)
		run, err := json.Marshal(job)
		require.NoError(f, err)
		f.Add(object, run, []byte(`{}`), int64(3))
	}
	f.Fuzz(func(t *testing.T, object, run, pod []byte, seconds int64) {
		s, j, p := &v1alpha1.AgenticSession{}, &batchv1.Job{}, corev1.Pod{}
		if json.Unmarshal(object, s) != nil || json.Unmarshal(run, j) != nil || json.Unmarshal(pod, &p) != nil {
			return
		}
		in := Observation{Session: s, Runner: newTestRunner(), Jobs: []*batchv1.Job{j}, Pods: []corev1.Pod{p}, Now: time.Unix(seconds, 0)}
		in.Answers = Answers{Jobs: map[string]*batchv1.Job{s.Status.Attempt.JobName: nil}, Listed: true}
		decision := Decide(in)
		require.True(t, decision.Question == nil, "the decision repeats an answered question")
		if decision.CreateJob != nil {
			checkHardened(t, 0, &decision.CreateJob.Spec.Template.Spec)
		}
	})
}
