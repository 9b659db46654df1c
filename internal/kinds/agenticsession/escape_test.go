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
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func newStrictRunner() *v1alpha1.SessionRunner {
	r := newTestRunner()
	r.Spec.Allowed.Images = []string{"registry.example/other:1"}
	testbuilder.RunnerContainer(&r.Spec).Env = []corev1.EnvVar{{Name: "HTTPS_PROXY", Value: "http://127.0.0.1:3128"}}
	testbuilder.RunnerContainer(&r.Spec).Command, testbuilder.RunnerContainer(&r.Spec).Args = []string{"sh", "-c", "echo started at $(date), $$(escaped)"}, []string{"$(MODE)"}
	testbuilder.RunnerContainer(&r.Spec).Resources = corev1.ResourceRequirements{Limits: resourceAmounts("500m", "1Gi", "1Gi")}
	r.Spec.Limits.MaxResources = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
	r.Spec.Workspace.StorageClassName, r.Spec.Limits.MaxWorkspaceSize = new("slow"), new(resource.MustParse("5Gi"))
	r.Spec.Allowed.Secrets = []v1alpha1.SessionSource{testbuilder.Source("git"), testbuilder.Source("command", "MODE"), testbuilder.Source("model", "token", "PRELOAD", "D_PRELOAD", "PATH", "1st")}
	r.Spec.Allowed.ConfigMaps = []v1alpha1.SessionSource{testbuilder.Source("settings", "KUBERNETES_SERVICE_HOST")}
	r.Spec.Limits.Timeout = seconds(3600)
	return r
}

// The condition names the field, and what to add to the SessionRunner.
func TestSessionCannotExceedSessionRunnerLimits(t *testing.T) {
	type change = func(spec *v1alpha1.AgenticSessionSpec)
	resources := func(r corev1.ResourceRequirements) change {
		return func(spec *v1alpha1.AgenticSessionSpec) { spec.Resources = &r }
	}
	limits := func(name corev1.ResourceName, amount string) change {
		return resources(corev1.ResourceRequirements{Limits: corev1.ResourceList{name: resource.MustParse(amount)}})
	}
	requests := func(name corev1.ResourceName, amount string) change {
		return resources(corev1.ResourceRequirements{Requests: corev1.ResourceList{name: resource.MustParse(amount)}})
	}
	variable := func(name string) change {
		return func(spec *v1alpha1.AgenticSessionSpec) {
			spec.EnvironmentVariables = map[string]v1alpha1.EnvironmentValue{name: "x"}
		}
	}
	image := func(image string) change { return func(spec *v1alpha1.AgenticSessionSpec) { spec.Image = image } }
	workspace := func(w v1alpha1.WorkspaceClaim) change {
		return func(spec *v1alpha1.AgenticSessionSpec) { spec.Workspace = &w }
	}
	mount := func(name, path string) change {
		return func(spec *v1alpha1.AgenticSessionSpec) {
			spec.SecretMounts = []v1alpha1.SecretMount{{LocalReference: v1alpha1.LocalReference{Name: name}, MountPath: path}}
		}
	}
	from := func(source corev1.EnvFromSource) change {
		return func(spec *v1alpha1.AgenticSessionSpec) { spec.EnvFrom = []corev1.EnvFromSource{source} }
	}
	check := func(title string, exceed change, want string) {
		t.Run(title, func(t *testing.T) {
			s := newScenario(t, exceed)
			s.Runner = newStrictRunner()
			s.wantNotAccepted(want)
		})
	}
	check("another image", image("evil:1"), "spec.image: ")
	check("the same image with another tag", image("runner:2"), "spec.image: ")
	check("the same image from another registry", image("evil.example/runner:1"), "spec.image: ")
	check("an allowed image with a digest", image("registry.example/other:1@sha256:"+strings.Repeat("0", 64)), "spec.image: ")
	check("an allowed image in other case", image("registry.example/Other:1"), "spec.image: ")
	check("more CPU than maxResources", limits("cpu", "2001m"), "spec.resources.limits[cpu]: ")
	check("more memory than the default limit", limits("memory", "1025Mi"), "spec.resources.limits[memory]: ")
	check("a request above the limit", requests("memory", "2Gi"), "spec.resources.requests[memory]: ")
	check("more ephemeral storage", limits("ephemeral-storage", "1Ti"), "spec.resources.limits[ephemeral-storage]: ")
	check("a device", limits("nvidia.com/gpu", "1"), "spec.resources.limits[nvidia.com/gpu]: ")
	check("a device as a request", requests("nvidia.com/gpu", "1"), "spec.resources.requests[nvidia.com/gpu]: ")
	check("huge pages", limits("hugepages-2Mi", "2Mi"), "spec.resources.limits[hugepages-2Mi]: ")
	check("a negative limit", limits("memory", "-1"), "spec.resources.limits[memory]: ")
	check("a variable of the SessionRunner", variable("HTTPS_PROXY"), "spec.environmentVariables[HTTPS_PROXY]: ")
	check("a variable in the command", variable("date"), "spec.environmentVariables[date]: ")
	check("a variable in the command from a Secret", from(envFromSecret("command", "", nil)), "spec.envFrom[0]: ")
	check("LD_PRELOAD", variable("LD_PRELOAD"), "spec.environmentVariables[LD_PRELOAD]: ")
	check("PATH", variable("PATH"), "spec.environmentVariables[PATH]: ")
	check("a variable of the operator", variable("AGENTIC_RUN"), "spec.environmentVariables[AGENTIC_RUN]: ")
	check("a variable of Kubernetes", variable("KUBERNETES_SERVICE_HOST"), "spec.environmentVariables[KUBERNETES_SERVICE_HOST]: ")
	check("a reserved prefix", from(envFromSecret("git", "AGENTIC_", nil)), "spec.envFrom[0].prefix: ")
	check("a Secret in envFrom that is not allowed", from(envFromSecret("db", "", nil)),
		"envFrom[0].secretRef.name: Forbidden: SessionRunner default does not allow Secret db: add it, with the keys to use, to allowed.secrets")
	check("a Secret in envFrom without keys", from(envFromSecret("git", "", nil)),
		"envFrom[0].secretRef.name: Forbidden: SessionRunner default lists no keys of Secret git, so it can only be mounted: use secretMounts")
	check("LD_PRELOAD from a prefix and a key", from(envFromSecret("model", "L", nil)),
		"key D_PRELOAD of Secret model sets the variable LD_PRELOAD, which is reserved: set another prefix")
	check("PATH from a key", from(envFromSecret("model", "", nil)), "spec.envFrom[0]: ")
	check("a variable of Kubernetes in a ConfigMap", from(envFromConfigMap("settings")), "spec.envFrom[0]: ")
	check("a prefix that is reserved", from(envFromSecret("model", "LD_", nil)), "spec.envFrom[0].prefix: ")
	check("a variable with an invalid name", from(envFromSecret("model", "a=b", nil)), "spec.envFrom[0]: ")
	check("a variable with a name that is too long", from(envFromSecret("model", strings.Repeat("A", 255), nil)), "spec.envFrom[0]: ")
	check("a ConfigMap that is not allowed", from(envFromConfigMap("other")),
		"spec.envFrom[0].configMapRef.name: Forbidden: SessionRunner default does not allow ConfigMap other: add it, with the keys to use, to")
	check("a ConfigMap whose name is a path", from(envFromConfigMap("a/b")), "spec.envFrom[0].configMapRef.name: ")
	check("a mounted Secret that is not allowed", mount("db", ""),
		"spec.secretMounts[0].name: Forbidden: SessionRunner default does not allow Secret db: add it to allowed.secrets")
	check("the inputs of another session", mount("other-inputs-0123456789", ""), "spec.secretMounts[0].name: Forbidden: the inputs Secret of a session")
	check("the inputs of another session in envFrom", from(envFromSecret("other-inputs-0123456789", "", nil)),
		"spec.envFrom[0].secretRef.name: Forbidden: the inputs Secret of a session is only for its runner")
	check("a mount over /usr/bin", mount("git", "/usr/bin"), "spec.secretMounts[0].mountPath: ")
	check("a mount over the inputs", mount("git", inputsPath), "spec.secretMounts[0].mountPath: ")
	check("a mount over the token", mount("git", tokenPath), "spec.secretMounts[0].mountPath: ")
	check("a mount path with dots", mount("git", "/secrets/.."), "spec.secretMounts[0].mountPath: ")
	check("a mount over /secrets", mount("git", "/secrets"), "spec.secretMounts[0].mountPath: ")
	check("a workspace above the maximum", workspace(v1alpha1.WorkspaceClaim{Size: new(resource.MustParse("6Gi"))}), "spec.workspace.size: ")
	check("a workspace of size 0", workspace(v1alpha1.WorkspaceClaim{Size: new(resource.MustParse("0"))}), "spec.workspace.size: ")
	check("two repositories in one directory", func(spec *v1alpha1.AgenticSessionSpec) {
		spec.Repos = []v1alpha1.SessionRepo{{GitSource: v1alpha1.GitSource{URL: "https://a.example/shop.git"}}, {Name: "shop"}}
	}, `spec.repos[1].name: Duplicate value: "shop"`)
	check("mcpServers of more than 64 KiB", func(spec *v1alpha1.AgenticSessionSpec) {
		spec.Agent.MCPServers.Disabled = []string{strings.Repeat("x", maxMCPServersBytes)}
	}, "spec.agent.mcpServers: Too long")
	check("inactivityTimeout without activityLease", func(spec *v1alpha1.AgenticSessionSpec) { spec.Limits.InactivityTimeout = seconds(1) }, "spec.limits.inactivityTimeout: ")
}

func TestSessionGetsAllowedSettings(t *testing.T) {
	largest := strings.Repeat("x", maxEnvironmentBytes-len("escaped$(date)dat"))
	s := newScenario(t, func(spec *v1alpha1.AgenticSessionSpec) {
		spec.Image = "registry.example/other:1"
		spec.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}}
		spec.Workspace = &v1alpha1.WorkspaceClaim{Size: new(resource.MustParse("5Gi"))}
		spec.SecretMounts = []v1alpha1.SecretMount{{LocalReference: v1alpha1.LocalReference{Name: "git"}}}
		spec.EnvironmentVariables = map[string]v1alpha1.EnvironmentValue{"escaped": "$(date)", "dat": v1alpha1.EnvironmentValue(largest)}
		spec.Limits.Timeout = seconds(0)
	})
	s.Runner = newStrictRunner()
	c := &s.startAttempt().podSpec().Containers[0]
	got := []string{c.Image, c.Resources.Limits.Cpu().String(), c.Resources.Limits.Memory().String()}
	require.Equal(t, []string{"registry.example/other:1", "2", "1Gi"}, got)
	require.Equal(t, 3600, s.secondsLeft())
}

func TestResourcesThatAreNotSetFollowTheLimits(t *testing.T) {
	for title, change := range map[string]func(s *scenario){
		"the requests of low limits": func(s *scenario) {
			s.Session.Spec.Resources = &corev1.ResourceRequirements{Limits: resourceAmounts("10m", "64Mi", "100Mi")}
		},
		"the defaults of low maxResources": func(s *scenario) { s.Runner.Spec.Limits.MaxResources = resourceAmounts("10m", "64Mi", "500Mi") },
	} {
		s := newScenario(t)
		change(s)
		c := s.startAttempt().podSpec().Containers[0]
		for _, amounts := range []corev1.ResourceList{c.Resources.Requests, c.Resources.Limits} {
			require.True(t, amounts.Memory().String() == "64Mi" && amounts.Cpu().String() == "10m", "%s: %+v", title, c.Resources)
		}
	}
}

func TestInvalidSessionRunnerStartsNoJob(t *testing.T) {
	type runnerSpec = v1alpha1.SessionRunnerSpec
	type podSpec = corev1.PodSpec
	mount := func(path string, source corev1.VolumeSource) func(*runnerSpec, *podSpec) {
		return func(spec *runnerSpec, _ *podSpec) { testbuilder.MountVolume(spec, "a", path, source) }
	}
	label := func(key, value string) func(*runnerSpec, *podSpec) {
		return func(spec *runnerSpec, _ *podSpec) { spec.Template.Labels = map[string]string{key: value} }
	}
	jobLabel := func(key, value string) func(*runnerSpec, *podSpec) {
		return func(spec *runnerSpec, _ *podSpec) {
			spec.JobMetadata = &v1alpha1.ObjectMetadata{Labels: map[string]string{key: value}}
		}
	}
	configMap, few, many := testbuilder.ConfigMapVolume("a"), resourceAmounts("1", "1Gi", "1Gi"), resourceAmounts("2", "1Gi", "1Gi")
	secrets := &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{Secret: &corev1.SecretProjection{}}}}
	const labels, appArmor = "spec.template.metadata.labels", "container.apparmor.security.beta.kubernetes.io/runner"
	for want, change := range map[string]func(*runnerSpec, *podSpec){
		`"models": it is not an absolute path`:                                       mount("models", configMap),
		`"/srv/../workspace": it is not an absolute path`:                            mount("/srv/../workspace", configMap),
		`"/workspace": it overlaps with /workspace`:                                  mount("/workspace", configMap),
		`"/workspace/models": it overlaps with /workspace`:                           mount("/workspace/models", configMap),
		`"/home": it overlaps with /home/agent`:                                      mount("/home", configMap),
		`"/etc/agentic": it overlaps with /etc/agentic`:                              mount("/etc/agentic", configMap),
		`"/var/run/secrets": it overlaps with /var/run/secrets/kubernetes.io`:        mount("/var/run/secrets", configMap),
		`"/dev/termination-log": it overlaps with /dev`:                              mount("/dev/termination-log", configMap),
		"the token would be for the API server":                                      mount("/tokens", testbuilder.Tokens(corev1.ServiceAccountTokenProjection{Path: "a"})),
		"a projected volume has no other sources":                                    mount("/node", corev1.VolumeSource{Projected: secrets}),
		"set exactly one of configMap, secret, persistentVolumeClaim and projected":  mount("/node", corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}),
		labels + "[" + LabelSessionUID + "]: Forbidden: the key is reserved":         label(LabelSessionUID, "other"),
		labels + "[yardmaster.dev/workerpool]: Forbidden: the key is reserved":       label("yardmaster.dev/workerpool", "mail"),
		labels + "[" + v1alpha1.LabelManagedBy + "]: Forbidden: the key is reserved": label(v1alpha1.LabelManagedBy, "me"),
		labels + "[batch.kubernetes.io/job-name]: Forbidden: the key is reserved":    label("batch.kubernetes.io/job-name", "other"),
		labels + "[job-name]: Forbidden: the key is reserved":                        label("job-name", "other"),
		labels: label("team", "a b"),
		"spec.jobMetadata.labels[" + LabelSessionUID + "]: Forbidden: the key is reserved": jobLabel(LabelSessionUID, "other"),
		"spec.jobMetadata.labels": jobLabel("kueue.x-k8s.io/queue-name", "a b"),
		"spec.jobMetadata.annotations": func(spec *runnerSpec, _ *podSpec) {
			spec.JobMetadata = &v1alpha1.ObjectMetadata{Annotations: map[string]string{"a b": "c"}}
		},
		"spec.template.metadata.annotations[" + appArmor + "]: Forbidden: the key is reserved": func(spec *runnerSpec, _ *podSpec) {
			spec.Template.Annotations = map[string]string{appArmor: "x"}
		},
		"spec.template.spec.nodeSelector": func(_ *runnerSpec, pod *podSpec) { pod.NodeSelector = map[string]string{"a b": "c"} },
		"spec: Forbidden: " + decision.TooLargeMessage: func(spec *runnerSpec, _ *podSpec) {
			spec.Allowed.Images = []string{strings.Repeat("x", decision.MaxSpecBytes)}
		},
		"inactivityTimeout: Forbidden: it requires activityLease": func(spec *runnerSpec, _ *podSpec) { spec.Limits.InactivityTimeout = seconds(600) },
		"it exceeds limits.maxResources": func(spec *runnerSpec, pod *podSpec) {
			pod.Containers[0].Resources.Limits, spec.Limits.MaxResources = many, few
		},
		"spec.template.spec.containers[0].resources.requests": func(_ *runnerSpec, pod *podSpec) {
			pod.Containers[0].Resources = corev1.ResourceRequirements{Requests: many, Limits: few}
		},
		"could read the archive in the claim transcripts":                     mount("/srv/a", testbuilder.ClaimVolume("transcripts")),
		`secret.secretName: Invalid value: "A_B"`:                             mount("/srv/a", testbuilder.SecretVolume("A_B")),
		"it overlaps with " + archivePath:                                     mount(archivePath, configMap),                       // the directory of the socket
		"it overlaps with " + modelPath:                                       mount(modelPath, testbuilder.SecretVolume("other")), // the directory of the token
		"exactly one of claimRef and s3":                                      func(spec *runnerSpec, _ *podSpec) { spec.Archive.ClaimRef = nil },
		`spec.model.provider: Unsupported value: "Bedrock"`:                   func(spec *runnerSpec, _ *podSpec) { spec.Model.Provider = "Bedrock" },
		`spec.model.baseURL: Invalid value: "https://a:b@example.com"`:        func(spec *runnerSpec, _ *podSpec) { spec.Model.BaseURL = "https://a:b@example.com" },
		`spec.model.baseURL: Invalid value: "/v1"`:                            func(spec *runnerSpec, _ *podSpec) { spec.Model.BaseURL = "/v1" },
		`spec.model.baseURL: Invalid value: "ftp://model.example"`:            func(spec *runnerSpec, _ *podSpec) { spec.Model.BaseURL = "ftp://model.example" },
		"spec.network.port: Invalid value: 9471: it is the port of the proxy": func(spec *runnerSpec, _ *podSpec) { spec.Network.Port = 9471 },
		`spec.git.repositories: Invalid value: "": "acme" is not host/path`: func(spec *runnerSpec, _ *podSpec) {
			spec.Git = &v1alpha1.SessionGit{SecretRef: &v1alpha1.LocalReference{Name: "forge"}, Repositories: []string{"acme"}}
		},
		"HOME is set by the operator": func(_ *runnerSpec, pod *podSpec) { pod.Containers[0].Env = []corev1.EnvVar{{Name: "HOME", Value: "/"}} },
		"activityLease needs a ServiceAccount for each session": func(spec *runnerSpec, pod *podSpec) {
			pod.ServiceAccountName, spec.ActivityLease = "model-caller", true
		},
		"spec.template.spec.securityContext.runAsUser": func(_ *runnerSpec, pod *podSpec) { pod.SecurityContext.RunAsUser = new(int64(0)) },
		`containers[0].name: Invalid value: "agent"`:   func(_ *runnerSpec, pod *podSpec) { pod.Containers[0].Name = "agent" },
		"the only container is named runner": func(_ *runnerSpec, pod *podSpec) {
			pod.Containers = append(pod.Containers, corev1.Container{Name: "other", Image: "x"})
		},
		"spec.template.spec.initContainers[0].restartPolicy": func(_ *runnerSpec, pod *podSpec) {
			pod.InitContainers = []corev1.Container{{Name: "prepare", Image: "x"}}
		},
		"the runner always has the workspace at /workspace": func(_ *runnerSpec, pod *podSpec) {
			pod.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "workspace", MountPath: "/other"}}
		},
		"spec.template.spec.initContainers[0].volumeMounts[0].name: Not found": func(_ *runnerSpec, pod *podSpec) {
			pod.InitContainers = []corev1.Container{testbuilder.Sidecar("proxy", "x")}
			pod.InitContainers[0].VolumeMounts = []corev1.VolumeMount{{Name: "inputs", MountPath: "/inputs"}}
		},
	} {
		t.Run(want, func(t *testing.T) {
			s := setModel(newScenario(t))
			setArchive(archiveInClaim)(s)
			change(&s.Runner.Spec, testbuilder.RunnerPod(&s.Runner.Spec))
			s.wantNotAccepted(want)
		})
	}
}

func TestChangedLimitsDoNotStopRunningSession(t *testing.T) {
	s := newRunningScenario(t)
	s.Runner.Spec.Image = "runner:2"
	testbuilder.RunnerContainer(&s.Runner.Spec).Resources.Limits, s.Runner.Spec.Limits.MaxResources = resourceAmounts("2", "1Gi", "1Gi"), resourceAmounts("1", "1Gi", "1Gi")
	s.wantPhase(v1alpha1.SessionRunning, "")
	s.wantCondition(v1alpha1.ConditionSpecAccepted, metav1.ConditionFalse, v1alpha1.ReasonNotAllowed)
}

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

func TestDaemonSetThatPullsImagesIsRestricted(t *testing.T) {
	manifest, err := os.ReadFile(filepath.Join("..", "..", "..", "examples", "agents", "images.yaml"))
	require.NoError(t, err)
	daemonSet := &appsv1.DaemonSet{}
	require.NoError(t, yaml.UnmarshalStrict(manifest, daemonSet))
	template := &daemonSet.Spec.Template
	require.True(t, len(template.Spec.InitContainers) == 1 && maps.Equal(daemonSet.Spec.Selector.MatchLabels, template.Labels), "%+v", daemonSet)
	for _, result := range restrictedEvaluator(t)(&template.ObjectMeta, &template.Spec) {
		require.True(t, result.Allowed, "%s: %s", result.ForbiddenReason, result.ForbiddenDetail)
	}
}

func checkHardened(t *testing.T, seed uint64, pod *corev1.PodSpec) {
	t.Helper()
	hasToken := pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken
	require.True(t, !hasToken && !pod.HostNetwork && !pod.HostPID && !pod.HostIPC, "seed %d: the Pod has a token, or is in namespaces of the node", seed)
	require.True(t, len(pod.Containers) == 1 && pod.Containers[0].Name == v1alpha1.RunnerContainer, "seed %d: containers %+v", seed, pod.Containers)
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		for name := range mountsOf(&c) {
			isVolume := slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == name })
			require.True(t, isVolume, "seed %d: %s mounts %s, which does not exist", seed, c.Name, name)
		}
		sc := c.SecurityContext
		require.True(t, sc != nil && *sc.ReadOnlyRootFilesystem && *sc.RunAsNonRoot && !*sc.Privileged && !*sc.AllowPrivilegeEscalation &&
			len(sc.Capabilities.Add) == 0 && slices.Equal(sc.Capabilities.Drop, []corev1.Capability{"ALL"}), "seed %d: %s: %+v", seed, c.Name, sc)
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
			request, limit := c.Resources.Requests[name], c.Resources.Limits[name]
			_, isLimited := c.Resources.Limits[name]
			require.True(t, isLimited && request.Cmp(limit) <= 0, "seed %d: %s: %s is %s of %s", seed, c.Name, name, request.String(), limit.String())
		}
	}
	temporary := map[string]bool{}
	for _, c := range pod.InitContainers {
		at := slices.IndexFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == tempPath })
		if at < 0 && c.Name == checkContainer {
			continue
		}
		require.True(t, at >= 0, "seed %d: %s has no temporary volume", seed, c.Name)
		want := emptyDirVolume(c.VolumeMounts[at].Name, c.Resources.Limits)
		isOwn := !temporary[want.Name] && slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return cmp.Equal(v, want) })
		require.True(t, isOwn, "seed %d: %s has no temporary volume of its own size: %+v", seed, c.Name, want)
		temporary[want.Name] = true
	}
	names := map[string]bool{}
	for _, variable := range pod.Containers[0].Env {
		require.True(t, !names[variable.Name], "seed %d: %s is set twice", seed, variable.Name)
		names[variable.Name] = true
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

// maybe returns the value, or as often nothing.
func maybe[T any](f randomSpecs, value T) (result T) {
	if f.randomBool() {
		result = value
	}
	return result
}

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
	spec.EnvironmentVariables = maybe(f, map[string]v1alpha1.EnvironmentValue{
		f.pickOne("A", "HTTPS_PROXY", "RUNNER_TYPE"): v1alpha1.EnvironmentValue(f.pickOne("", "$(HOME)", "\n", strings.Repeat("x", 9999))),
	})
	if f.rng.IntN(20) == 0 {
		spec.EnvironmentVariables = map[string]v1alpha1.EnvironmentValue{f.pickOne("PATH", "LD_PRELOAD", "AGENTIC_X"): "x"}
	}
	spec.SecretMounts = maybe(f, []v1alpha1.SecretMount{{LocalReference: v1alpha1.LocalReference{Name: f.pickOne("a", "b.c")}, MountPath: f.pickOne("", "/secrets/x")}})
	spec.EnvFrom = maybe(f, []corev1.EnvFromSource{envFromSecret("a", f.pickOne("", "X_"), nil)})
	spec.Resources = maybe(f, maybe(f, new(f.randomResources())))
	workspace := &v1alpha1.WorkspaceClaim{Retention: v1alpha1.WorkspaceRetention(f.pickOne("", "Delete", "Retain"))}
	workspace.Size = maybe(f, maybe(f, new(f.randomQuantity())))
	spec.Workspace = maybe(f, workspace)
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
		sidecar.StartupProbe = maybe(f, &corev1.Probe{TerminationGracePeriodSeconds: new(int64(3600)), ProbeHandler: corev1.ProbeHandler{
			HTTPGet:   maybe(f, &corev1.HTTPGetAction{Host: "169.254.169.254", Port: intstr.FromInt32(80)}),
			TCPSocket: maybe(f, &corev1.TCPSocketAction{Host: "10.0.0.1", Port: intstr.FromInt32(80)}),
		}})
		testbuilder.RunnerPod(spec).InitContainers = append(testbuilder.RunnerPod(spec).InitContainers, sidecar)
	}
	if f.randomBool() {
		testbuilder.RunnerPod(spec).ServiceAccountName = f.pickOne("", "model-caller")
		testbuilder.MountVolume(spec, "tokens", "/tokens", testbuilder.Tokens(corev1.ServiceAccountTokenProjection{
			Audience: f.pickOne("cloud.example", "https://kubernetes.default.svc"), Path: "a",
		}))
	}
	testbuilder.RunnerPod(spec).RuntimeClassName = maybe(f, new("gvisor"))
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

// Nor does it repeat questions, and each Pod is hardened, for any object and status.
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
