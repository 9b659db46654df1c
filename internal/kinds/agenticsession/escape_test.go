package agenticsession

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// Each row exceeds the limits of the SessionRunner. No Job may be created, and the condition must
// name the field, and what to add to the SessionRunner.
func TestSessionCannotExceedSessionRunnerLimits(t *testing.T) {
	type change = func(spec *v1alpha1.AgenticSessionSpec)
	limits := func(name, amount string) change {
		return func(spec *v1alpha1.AgenticSessionSpec) {
			spec.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceName(name): resource.MustParse(amount)}}
		}
	}
	requests := func(name, amount string) change {
		return func(spec *v1alpha1.AgenticSessionSpec) {
			spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceName(name): resource.MustParse(amount)}}
		}
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
	for title, test := range map[string]struct {
		exceed change
		want   string
	}{
		"another image":                           {image("evil:1"), "spec.image: "},
		"the same image with another tag":         {image("runner:2"), "spec.image: "},
		"the same image from another registry":    {image("evil.example/runner:1"), "spec.image: "},
		"an allowed image with a digest":          {image("registry.example/other:1@sha256:" + strings.Repeat("0", 64)), "spec.image: "},
		"an allowed image in other case":          {image("registry.example/Other:1"), "spec.image: "},
		"more CPU than maxResources":              {limits("cpu", "2001m"), "spec.resources.limits[cpu]: "},
		"more memory than the default limit":      {limits("memory", "1025Mi"), "spec.resources.limits[memory]: "},
		"a request above the limit":               {requests("memory", "2Gi"), "spec.resources.requests[memory]: "},
		"more ephemeral storage":                  {limits("ephemeral-storage", "1Ti"), "spec.resources.limits[ephemeral-storage]: "},
		"a device":                                {limits("nvidia.com/gpu", "1"), "spec.resources.limits[nvidia.com/gpu]: "},
		"a device as a request":                   {requests("nvidia.com/gpu", "1"), "spec.resources.requests[nvidia.com/gpu]: "},
		"huge pages":                              {limits("hugepages-2Mi", "2Mi"), "spec.resources.limits[hugepages-2Mi]: "},
		"a negative limit":                        {limits("memory", "-1"), "spec.resources.limits[memory]: "},
		"a variable of the SessionRunner":         {variable("HTTPS_PROXY"), "spec.environmentVariables[HTTPS_PROXY]: "},
		"a variable in the command":               {variable("date"), "spec.environmentVariables[date]: "},
		"a variable in the command from a Secret": {from(envFromSecret("command", "", nil)), "spec.envFrom[0]: "},
		"LD_PRELOAD":                              {variable("LD_PRELOAD"), "spec.environmentVariables[LD_PRELOAD]: "},
		"PATH":                                    {variable("PATH"), "spec.environmentVariables[PATH]: "},
		"a variable of the operator":              {variable("AGENTIC_RUN"), "spec.environmentVariables[AGENTIC_RUN]: "},
		"a variable of Kubernetes":                {variable("KUBERNETES_SERVICE_HOST"), "spec.environmentVariables[KUBERNETES_SERVICE_HOST]: "},
		"a reserved prefix":                       {from(envFromSecret("git", "AGENTIC_", nil)), "spec.envFrom[0].prefix: "},
		"a Secret in envFrom that is not allowed": {
			from(envFromSecret("db", "", nil)),
			"envFrom[0].secretRef.name: Forbidden: SessionRunner default does not allow Secret db: add it, with the keys to use, to allowed.secrets",
		},
		"a Secret in envFrom without keys": {
			from(envFromSecret("git", "", nil)),
			"envFrom[0].secretRef.name: Forbidden: SessionRunner default lists no keys of Secret git, so it can only be mounted: use secretMounts",
		},
		"LD_PRELOAD from a prefix and a key": {
			from(envFromSecret("model", "L", nil)),
			"key D_PRELOAD of Secret model sets the variable LD_PRELOAD, which is reserved: set another prefix",
		},
		"PATH from a key":                         {from(envFromSecret("model", "", nil)), "spec.envFrom[0]: "},
		"a variable of Kubernetes in a ConfigMap": {from(envFromConfigMap("settings")), "spec.envFrom[0]: "},
		"a prefix that is reserved":               {from(envFromSecret("model", "LD_", nil)), "spec.envFrom[0].prefix: "},
		"a variable with an invalid name":         {from(envFromSecret("model", "a=b", nil)), "spec.envFrom[0]: "},
		"a variable with a name that is too long": {from(envFromSecret("model", strings.Repeat("A", 255), nil)), "spec.envFrom[0]: "},
		"a ConfigMap that is not allowed": {
			from(envFromConfigMap("other")),
			"spec.envFrom[0].configMapRef.name: Forbidden: SessionRunner default does not allow ConfigMap other: add it, with the keys to use, to",
		},
		"a ConfigMap whose name is a path": {from(envFromConfigMap("a/b")), "spec.envFrom[0].configMapRef.name: "},
		"a mounted Secret that is not allowed": {
			mount("db", ""),
			"spec.secretMounts[0].name: Forbidden: SessionRunner default does not allow Secret db: add it to allowed.secrets",
		},
		"the inputs of another session":            {mount("other-inputs-0123456789", ""), "spec.secretMounts[0].name: "},
		"the inputs of another session in envFrom": {from(envFromSecret("other-inputs-0123456789", "", nil)), "spec.envFrom[0].secretRef.name: "},
		"a mount over /usr/bin":                    {mount("git", "/usr/bin"), "spec.secretMounts[0].mountPath: "},
		"a mount over the inputs":                  {mount("git", inputsPath), "spec.secretMounts[0].mountPath: "},
		"a mount over the token":                   {mount("git", tokenPath), "spec.secretMounts[0].mountPath: "},
		"a mount path with dots":                   {mount("git", "/secrets/.."), "spec.secretMounts[0].mountPath: "},
		"a mount over /secrets":                    {mount("git", "/secrets"), "spec.secretMounts[0].mountPath: "},
		"a workspace above the maximum":            {workspace(v1alpha1.WorkspaceClaim{Size: new(resource.MustParse("6Gi"))}), "spec.workspace.size: "},
		"inactivityTimeout without activityLease":  {func(spec *v1alpha1.AgenticSessionSpec) { spec.Limits.InactivityTimeout = seconds(1) }, "spec.limits.inactivityTimeout: "},
	} {
		t.Run(title, func(t *testing.T) {
			s := newScenario(t, test.exceed)
			s.Runner = newStrictRunner()
			s.wantNotAccepted(test.want)
		})
	}
}

// A session gets what it sets within the limits, and defaults for the rest.
func TestSessionGetsAllowedSettings(t *testing.T) {
	s := newScenario(t, func(spec *v1alpha1.AgenticSessionSpec) {
		spec.Image = "registry.example/other:1"
		spec.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}}
		spec.Workspace = &v1alpha1.WorkspaceClaim{Size: new(resource.MustParse("5Gi"))}
		spec.SecretMounts = []v1alpha1.SecretMount{{LocalReference: v1alpha1.LocalReference{Name: "git"}}}
		spec.EnvironmentVariables = map[string]v1alpha1.EnvironmentValue{"escaped": "$(date)", "dat": "x"}
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
		"HOME is set by the operator": func(_ *runnerSpec, pod *podSpec) { pod.Containers[0].Env = []corev1.EnvVar{{Name: "HOME", Value: "/"}} },
		"activityLease needs a ServiceAccount for each session": func(spec *runnerSpec, pod *podSpec) {
			pod.ServiceAccountName, spec.ActivityLease = "model-caller", true
		},
		"spec.template.spec.securityContext.runAsUser": func(_ *runnerSpec, pod *podSpec) { pod.SecurityContext.RunAsUser = new(int64(0)) },
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
			s := newScenario(t)
			change(&s.Runner.Spec, testbuilder.RunnerPod(&s.Runner.Spec))
			s.wantNotAccepted(want)
		})
	}
}

// A session cannot change the values of the SessionRunner's variables, which may refer to other
// variables.
func TestSessionVariablesComeLast(t *testing.T) {
	s := newScenario(t, func(spec *v1alpha1.AgenticSessionSpec) {
		spec.EnvironmentVariables = map[string]v1alpha1.EnvironmentValue{"A": "x"}
	})
	testbuilder.RunnerContainer(&s.Runner.Spec).Env = []corev1.EnvVar{{Name: "B", Value: "$(A)"}}
	env := s.startAttempt().newestJob().Spec.Template.Spec.Containers[0].Env
	at := func(name string) int {
		return slices.IndexFunc(env, func(e corev1.EnvVar) bool { return e.Name == name })
	}
	require.True(t, at("A") >= at("B") && env[at("A")].Value == "", "%+v", env)
}

func TestChangedLimitsDoNotStopRunningSession(t *testing.T) {
	s := newRunningScenario(t)
	s.Runner.Spec.Image = "runner:2"
	testbuilder.RunnerContainer(&s.Runner.Spec).Resources.Limits, s.Runner.Spec.Limits.MaxResources = resourceAmounts("2", "1Gi", "1Gi"), resourceAmounts("1", "1Gi", "1Gi")
	s.wantPhase(v1alpha1.SessionRunning, "")
	s.wantCondition(v1alpha1.ConditionSpecAccepted, metav1.ConditionFalse, v1alpha1.ReasonNotAllowed)
}
