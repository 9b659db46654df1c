package agenticsession

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// newStrictRunner returns a SessionRunner with strict limits.
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
// name the field.
func TestSessionCannotExceedSessionRunnerLimits(t *testing.T) {
	limits := func(name, amount string) func(spec *v1alpha1.AgenticSessionSpec) {
		return func(spec *v1alpha1.AgenticSessionSpec) {
			spec.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceName(name): resource.MustParse(amount)}}
		}
	}
	requests := func(name, amount string) func(spec *v1alpha1.AgenticSessionSpec) {
		return func(spec *v1alpha1.AgenticSessionSpec) {
			spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceName(name): resource.MustParse(amount)}}
		}
	}
	variable := func(name string) func(spec *v1alpha1.AgenticSessionSpec) {
		return func(spec *v1alpha1.AgenticSessionSpec) {
			spec.EnvironmentVariables = map[string]v1alpha1.EnvironmentValue{name: "x"}
		}
	}
	image := func(image string) func(spec *v1alpha1.AgenticSessionSpec) {
		return func(spec *v1alpha1.AgenticSessionSpec) { spec.Image = image }
	}
	workspace := func(w v1alpha1.WorkspaceClaim) func(spec *v1alpha1.AgenticSessionSpec) {
		return func(spec *v1alpha1.AgenticSessionSpec) { spec.Workspace = &w }
	}
	mount := func(mounts ...v1alpha1.SecretMount) func(spec *v1alpha1.AgenticSessionSpec) {
		return func(spec *v1alpha1.AgenticSessionSpec) { spec.SecretMounts = mounts }
	}
	from := func(source corev1.EnvFromSource) func(spec *v1alpha1.AgenticSessionSpec) {
		return func(spec *v1alpha1.AgenticSessionSpec) { spec.EnvFrom = []corev1.EnvFromSource{source} }
	}
	secret := func(name string) *corev1.SecretEnvSource {
		return &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}
	}
	configMap := func(name string) *corev1.ConfigMapEnvSource {
		return &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}
	}
	tests := map[string]struct {
		exceed func(spec *v1alpha1.AgenticSessionSpec)
		field  string
	}{
		"another image":                            {image("evil:1"), "spec.image"},
		"the same image with another tag":          {image("runner:2"), "spec.image"},
		"the same image from another registry":     {image("evil.example/runner:1"), "spec.image"},
		"an allowed image with a digest":           {image("registry.example/other:1@sha256:" + strings.Repeat("0", 64)), "spec.image"},
		"an allowed image in other case":           {image("registry.example/Other:1"), "spec.image"},
		"more CPU than maxResources":               {limits("cpu", "2001m"), "spec.resources.limits[cpu]"},
		"more memory than the default limit":       {limits("memory", "1025Mi"), "spec.resources.limits[memory]"},
		"a request above the limit":                {requests("memory", "2Gi"), "spec.resources.requests[memory]"},
		"more ephemeral storage":                   {limits("ephemeral-storage", "1Ti"), "spec.resources.limits[ephemeral-storage]"},
		"a device":                                 {limits("nvidia.com/gpu", "1"), "spec.resources.limits[nvidia.com/gpu]"},
		"a device as a request":                    {requests("nvidia.com/gpu", "1"), "spec.resources.requests[nvidia.com/gpu]"},
		"huge pages":                               {limits("hugepages-2Mi", "2Mi"), "spec.resources.limits[hugepages-2Mi]"},
		"a negative limit":                         {limits("memory", "-1"), "spec.resources.limits[memory]"},
		"a variable of the SessionRunner":          {variable("HTTPS_PROXY"), "spec.environmentVariables[HTTPS_PROXY]"},
		"a variable in the command":                {variable("date"), "spec.environmentVariables[date]"},
		"a variable in the command from a Secret":  {from(corev1.EnvFromSource{SecretRef: secret("command")}), "spec.envFrom[0]"},
		"LD_PRELOAD":                               {variable("LD_PRELOAD"), "spec.environmentVariables[LD_PRELOAD]"},
		"PATH":                                     {variable("PATH"), "spec.environmentVariables[PATH]"},
		"a variable of the operator":               {variable("AGENTIC_RUN"), "spec.environmentVariables[AGENTIC_RUN]"},
		"a variable of Kubernetes":                 {variable("KUBERNETES_SERVICE_HOST"), "spec.environmentVariables[KUBERNETES_SERVICE_HOST]"},
		"a reserved prefix":                        {from(corev1.EnvFromSource{Prefix: "AGENTIC_", SecretRef: secret("git")}), "spec.envFrom[0].prefix"},
		"a Secret in envFrom that is not allowed":  {from(corev1.EnvFromSource{SecretRef: secret("db")}), "spec.envFrom[0].secretRef.name"},
		"a Secret in envFrom without keys":         {from(corev1.EnvFromSource{SecretRef: secret("git")}), "spec.envFrom[0].secretRef.name"},
		"LD_PRELOAD from a prefix and a key":       {from(corev1.EnvFromSource{Prefix: "L", SecretRef: secret("model")}), "spec.envFrom[0]"},
		"PATH from a key":                          {from(corev1.EnvFromSource{SecretRef: secret("model")}), "spec.envFrom[0]"},
		"a variable of Kubernetes in a ConfigMap":  {from(corev1.EnvFromSource{ConfigMapRef: configMap("settings")}), "spec.envFrom[0]"},
		"a prefix that is reserved":                {from(corev1.EnvFromSource{Prefix: "LD_", SecretRef: secret("model")}), "spec.envFrom[0].prefix"},
		"a variable with an invalid name":          {from(corev1.EnvFromSource{Prefix: "a=b", SecretRef: secret("model")}), "spec.envFrom[0]"},
		"a variable with a name that is too long":  {from(corev1.EnvFromSource{Prefix: strings.Repeat("A", 255), SecretRef: secret("model")}), "spec.envFrom[0]"},
		"a ConfigMap that is not allowed":          {from(corev1.EnvFromSource{ConfigMapRef: configMap("other")}), "spec.envFrom[0].configMapRef.name"},
		"a ConfigMap whose name is a path":         {from(corev1.EnvFromSource{ConfigMapRef: configMap("a/b")}), "spec.envFrom[0].configMapRef.name"},
		"a mounted Secret that is not allowed":     {mount(v1alpha1.SecretMount{LocalReference: v1alpha1.LocalReference{Name: "db"}}), "spec.secretMounts[0].name"},
		"the inputs of another session":            {mount(v1alpha1.SecretMount{LocalReference: v1alpha1.LocalReference{Name: "other-inputs-0123456789"}}), "spec.secretMounts[0].name"},
		"the inputs of another session in envFrom": {from(corev1.EnvFromSource{SecretRef: secret("other-inputs-0123456789")}), "spec.envFrom[0].secretRef.name"},
		"a mount over /usr/bin":                    {mount(v1alpha1.SecretMount{LocalReference: v1alpha1.LocalReference{Name: "git"}, MountPath: "/usr/bin"}), "spec.secretMounts[0].mountPath"},
		"a mount over the inputs":                  {mount(v1alpha1.SecretMount{LocalReference: v1alpha1.LocalReference{Name: "git"}, MountPath: inputsPath}), "spec.secretMounts[0].mountPath"},
		"a mount over the token":                   {mount(v1alpha1.SecretMount{LocalReference: v1alpha1.LocalReference{Name: "git"}, MountPath: tokenPath}), "spec.secretMounts[0].mountPath"},
		"a mount path with dots":                   {mount(v1alpha1.SecretMount{LocalReference: v1alpha1.LocalReference{Name: "git"}, MountPath: "/secrets/.."}), "spec.secretMounts[0].mountPath"},
		"a mount over /secrets":                    {mount(v1alpha1.SecretMount{LocalReference: v1alpha1.LocalReference{Name: "git"}, MountPath: "/secrets"}), "spec.secretMounts[0].mountPath"},
		"a workspace above the maximum":            {workspace(v1alpha1.WorkspaceClaim{Size: new(resource.MustParse("6Gi"))}), "spec.workspace.size"},
		"inactivityTimeout without activityLease":  {func(spec *v1alpha1.AgenticSessionSpec) { spec.Limits.InactivityTimeout = seconds(1) }, "spec.limits.inactivityTimeout"},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			s := newScenario(t, test.exceed)
			s.Runner = newStrictRunner()
			decision := s.decideAndRecord()
			if decision.CreateJob != nil || decision.DryRunPod != nil || len(decision.ApplyObjects) > 0 {
				t.Fatal("the session creates objects")
			}
			c := s.findCondition(v1alpha1.ConditionSpecAccepted)
			if c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, test.field+": ") {
				t.Errorf("SpecAccepted=%s: %s, want an error for %s", c.Status, c.Message, test.field)
			}
		})
	}
}

func (s *scenario) findCondition(kind string) *metav1.Condition {
	for i := range s.Session.Status.Conditions {
		if c := &s.Session.Status.Conditions[i]; c.Type == kind {
			return c
		}
	}
	return &metav1.Condition{}
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
	job := s.startAttempt().newestJob()
	c := &job.Spec.Template.Spec.Containers[0]
	if c.Image != "registry.example/other:1" || c.Resources.Limits.Cpu().String() != "2" || c.Resources.Limits.Memory().String() != "1Gi" {
		t.Errorf("%+v", c)
	}
	if left := s.secondsLeft(); left != 3600 {
		t.Errorf("%d seconds are left", left)
	}
}

func TestLowLimitsLowerRequests(t *testing.T) {
	s := newScenario(t, func(spec *v1alpha1.AgenticSessionSpec) {
		spec.Resources = &corev1.ResourceRequirements{Limits: resourceAmounts("10m", "64Mi", "100Mi")}
	})
	c := &s.startAttempt().newestJob().Spec.Template.Spec.Containers[0]
	if c.Resources.Requests.Memory().String() != "64Mi" || c.Resources.Requests.Cpu().String() != "10m" {
		t.Errorf("the runner requests %v", c.Resources.Requests)
	}
}

func TestDefaultResourcesAreCappedAtMaxResources(t *testing.T) {
	s := newScenario(t)
	s.Runner.Spec.Limits.MaxResources = resourceAmounts("200m", "100Mi", "500Mi")
	c := &s.startAttempt().newestJob().Spec.Template.Spec.Containers[0]
	if c.Resources.Limits.Memory().String() != "100Mi" || c.Resources.Requests.Memory().String() != "100Mi" {
		t.Errorf("%+v", c.Resources)
	}
}

func TestInvalidSessionRunnerStartsNoJob(t *testing.T) {
	tests := map[string]func(spec *v1alpha1.SessionRunnerSpec){
		"resources above maxResources": func(spec *v1alpha1.SessionRunnerSpec) {
			testbuilder.RunnerContainer(spec).Resources.Limits, spec.Limits.MaxResources = resourceAmounts("2", "1Gi", "1Gi"), resourceAmounts("1", "1Gi", "1Gi")
		},
		"a request above its limit": func(spec *v1alpha1.SessionRunnerSpec) {
			testbuilder.RunnerContainer(spec).Resources = corev1.ResourceRequirements{Requests: resourceAmounts("2", "1Gi", "1Gi"), Limits: resourceAmounts("1", "1Gi", "1Gi")}
		},
		"an exception outside its cidr": func(spec *v1alpha1.SessionRunnerSpec) {
			spec.Network.Egress = []v1alpha1.SessionEgress{{To: testbuilder.Block("10.0.0.0/8", "192.168.0.0/16"), Ports: testbuilder.Ports(1)}}
		},
		"HOME in env": func(spec *v1alpha1.SessionRunnerSpec) {
			testbuilder.RunnerContainer(spec).Env = []corev1.EnvVar{{Name: "HOME", Value: "/"}}
		},
		"activityLease with a ServiceAccount": func(spec *v1alpha1.SessionRunnerSpec) {
			testbuilder.RunnerPod(spec).ServiceAccountName, spec.ActivityLease = "model-caller", true
		},
		"a token without an audience": func(spec *v1alpha1.SessionRunnerSpec) {
			testbuilder.MountVolume(spec, "tokens", "/var/run/secrets/tokens", testbuilder.Tokens(corev1.ServiceAccountTokenProjection{Path: "a"}))
		},
		"a port with a name": func(spec *v1alpha1.SessionRunnerSpec) {
			spec.Network.Egress = []v1alpha1.SessionEgress{{Profile: v1alpha1.EgressPublicOnly, Ports: []networkingv1.NetworkPolicyPort{{Port: new(intstr.FromString("https"))}}}}
		},
		"root": func(spec *v1alpha1.SessionRunnerSpec) {
			testbuilder.RunnerPod(spec).SecurityContext.RunAsUser = new(int64(0))
		},
		"another container": func(spec *v1alpha1.SessionRunnerSpec) {
			testbuilder.RunnerPod(spec).Containers = append(testbuilder.RunnerPod(spec).Containers, corev1.Container{Name: "other", Image: "x"})
		},
		"an init container that ends": func(spec *v1alpha1.SessionRunnerSpec) {
			testbuilder.RunnerPod(spec).InitContainers = []corev1.Container{{Name: "prepare", Image: "x"}}
		},
		"a volume of the node": func(spec *v1alpha1.SessionRunnerSpec) {
			testbuilder.MountVolume(spec, "node", "/node", corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}})
		},
		"a projected Secret": func(spec *v1alpha1.SessionRunnerSpec) {
			testbuilder.MountVolume(spec, "node", "/node", corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "db"}}},
			}}})
		},
		"the workspace of the runner at another path": func(spec *v1alpha1.SessionRunnerSpec) {
			testbuilder.RunnerContainer(spec).VolumeMounts = []corev1.VolumeMount{{Name: "workspace", MountPath: "/other"}}
		},
		"a mount of the inputs in a sidecar": func(spec *v1alpha1.SessionRunnerSpec) {
			sidecar := testbuilder.Sidecar("proxy", "x")
			sidecar.VolumeMounts = []corev1.VolumeMount{{Name: "inputs", MountPath: "/inputs"}}
			testbuilder.RunnerPod(spec).InitContainers = []corev1.Container{sidecar}
		},
		"a sidecar named runner": func(spec *v1alpha1.SessionRunnerSpec) {
			testbuilder.RunnerPod(spec).InitContainers = []corev1.Container{testbuilder.Sidecar("runner", "x")}
		},
	}
	for title, change := range tests {
		t.Run(title, func(t *testing.T) {
			s := newScenario(t)
			change(&s.Runner.Spec)
			if decision := s.decideAndRecord(); decision.CreateJob != nil || !strings.Contains(s.findCondition(v1alpha1.ConditionSpecAccepted).Message, "spec.runner: ") {
				t.Errorf("%+v", s.findCondition(v1alpha1.ConditionSpecAccepted))
			}
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
	if at("A") < at("B") || env[at("A")].Value != "" {
		t.Errorf("%+v", env)
	}
}

func TestChangedLimitsDoNotStopRunningSession(t *testing.T) {
	s := newScenario(t).startAttempt().startRunner()
	s.decideAndRecord()
	s.Runner.Spec.Image = "runner:2"
	testbuilder.RunnerContainer(&s.Runner.Spec).Resources.Limits, s.Runner.Spec.Limits.MaxResources = resourceAmounts("2", "1Gi", "1Gi"), resourceAmounts("1", "1Gi", "1Gi")
	s.wantPhase(v1alpha1.SessionRunning, "")
	s.wantCondition(v1alpha1.ConditionSpecAccepted, metav1.ConditionFalse, v1alpha1.ReasonNotAllowed)
}
