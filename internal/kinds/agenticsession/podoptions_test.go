package agenticsession

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/policy"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func TestPodHasTheOptionsOfItsSessionRunner(t *testing.T) {
	s := newFullScenario(t)
	spec := &s.Runner.Spec
	template := testbuilder.RunnerPod(spec)
	template.HostUsers, template.NodeSelector, template.PriorityClassName = new(false), map[string]string{"pool": "agents"}, "low"
	template.Containers[0].ImagePullPolicy, template.InitContainers[1].ImagePullPolicy = corev1.PullAlways, corev1.PullNever
	template.Tolerations = []corev1.Toleration{{Key: "agents", Operator: corev1.TolerationOpExists}}
	spec.Template.Labels, spec.Template.Annotations = map[string]string{"team": "a"}, map[string]string{"cost": "7"}
	spec.CABundle = &v1alpha1.KeyReference{LocalReference: v1alpha1.LocalReference{Name: "cas"}, Key: "all.pem"}
	template.Containers[0].Env = append(template.Containers[0].Env, corev1.EnvVar{Name: "CURL_CA_BUNDLE", Value: "/own.pem"})
	testbuilder.MountVolume(spec, "models", "/models", testbuilder.ClaimVolume("models"))
	testbuilder.MountVolume(spec, "docs", "/srv/docs", testbuilder.ConfigMapVolume("docs"))
	sidecar := &template.InitContainers[0]
	sidecar.VolumeMounts = append(sidecar.VolumeMounts, corev1.VolumeMount{Name: "docs", MountPath: "/docs"})
	decision := s.decideAndRecord()
	s.createPlannedJob(decision)
	created := decision.CreateJob.Spec.Template
	pod := created.Spec
	require.True(t, !*pod.HostUsers && pod.NodeSelector["pool"] == "agents" && pod.PriorityClassName == "low" && pod.Tolerations[0].Key == "agents" &&
		created.Labels["team"] == "a" && created.Labels[LabelSessionUID] == "session" && created.Annotations["cost"] == "7", "%+v", created)
	for _, c := range append(pod.InitContainers, pod.Containers...) {
		env := map[string]string{}
		for _, variable := range c.Env {
			env[variable.Name] = variable.Value
		}
		require.Equal(t, map[string]corev1.PullPolicy{"runner": corev1.PullAlways, "tools": corev1.PullNever}[c.Name], c.ImagePullPolicy)
		require.Equal(t, "/etc/agentic-ca/ca.crt /etc/agentic-ca/ca.crt", env["SSL_CERT_FILE"]+" "+env["NODE_EXTRA_CA_CERTS"])
		require.True(t, c.Name != v1alpha1.RunnerContainer || env["CURL_CA_BUNDLE"] == "/own.pem",
			"the variable of the SessionRunner is %s", env["CURL_CA_BUNDLE"])
	}
	mounts := mountsOf(&pod.Containers[0])
	for name, path := range map[string]string{"runner-models": "/models", "runner-docs": "/srv/docs", "ca-bundle": "/etc/agentic-ca"} {
		mount := mounts[name]
		require.True(t, mount.MountPath == path && mount.ReadOnly, "volume %s is mounted as %+v, want read-only at %s", name, mount, path)
	}
	mounts = mountsOf(&pod.InitContainers[0])
	docs, workspace := mounts["runner-docs"], mounts[workspaceVolume]
	require.True(t, docs.MountPath == "/docs" && docs.ReadOnly, "the sidecar mounts %+v", docs)
	require.True(t, workspace.MountPath == workspacePath && !workspace.ReadOnly, "the sidecar mounts %+v", workspace)
	require.Equal(t, created.Labels, decision.DryRunPod.Labels)
	require.Equal(t, "7", decision.DryRunPod.Annotations["cost"])
}

// A SessionRunner of an older CRD, or without one, may have any field of a Pod.
func TestFieldsOfATemplateThatDoNotExistHaveNoEffect(t *testing.T) {
	newTemplate := func(change func(pod *corev1.PodSpec)) corev1.PodTemplateSpec {
		s := newFullScenario(t)
		testbuilder.MountVolume(&s.Runner.Spec, "docs", "/srv/docs", testbuilder.SecretVolume("docs"))
		change(testbuilder.RunnerPod(&s.Runner.Spec))
		return s.startAttempt().newestJob().Spec.Template
	}
	require.Equal(t, newTemplate(func(*corev1.PodSpec) {}), newTemplate(func(pod *corev1.PodSpec) {
		pod.HostNetwork, pod.HostPID, pod.HostIPC, pod.ShareProcessNamespace = true, true, true, new(true)
		pod.NodeName, pod.SchedulerName = "node", "other"
		pod.HostAliases = []corev1.HostAlias{{IP: "10.0.0.1", Hostnames: []string{"a"}}}
		pod.DNSPolicy, pod.DNSConfig = corev1.DNSNone, &corev1.PodDNSConfig{Nameservers: []string{"10.0.0.1"}}
		pod.AutomountServiceAccountToken, pod.DeprecatedServiceAccount = new(true), "admin"
		pod.SecurityContext.RunAsNonRoot, pod.SecurityContext.FSGroup = new(false), new(int64(0))
		pod.SecurityContext.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}
		weaken(&pod.Containers[0])
		weaken(&pod.InitContainers[0])
		pod.Containers[0].Image = "evil:1"
		pod.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}}
		pod.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
		mount := &pod.Containers[0].VolumeMounts[0]
		mount.ReadOnly, mount.SubPath, mount.MountPropagation = false, "../..", new(corev1.MountPropagationBidirectional)
		pod.Volumes[0].Secret.DefaultMode = new(int32(0o777))
		pod.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "x"}}}
	}))
}

func TestASessionWaitsUntilPoliciesAllowAllItsImages(t *testing.T) {
	for want, policies := range map[string]policy.Selection{
		`image "runner:1" of container "runner" is not allowed by Policy team, which allows: proxy:*`:     testbuilder.AllowImages("proxy:*"),
		`image "proxy:1" of init container "proxy" is not allowed by Policy team, which allows: runner:*`: testbuilder.AllowImages("runner:*"),
	} {
		s := newScenario(t)
		s.Policies = policies
		testbuilder.RunnerPod(&s.Runner.Spec).InitContainers = []corev1.Container{testbuilder.Sidecar("proxy", "proxy:1")}
		decision := s.decideAndRecord()
		require.True(t, decision.CreateJob == nil && len(decision.ApplyObjects) == 0, "the session starts: %+v", decision)
		s.wantCondition(v1alpha1.ConditionBlocked, metav1.ConditionTrue, v1alpha1.ReasonImageNotAllowed)
		require.Equal(t, want, s.findCondition(v1alpha1.ConditionReady).Message)
		s.Policies = policy.Selection{}
		s.startAttempt()
	}
}

func TestAChangedPolicyAffectsTheNextAttemptOnly(t *testing.T) {
	s := newScenario(t, withRetryLimit(1)).startAttempt().startRunner()
	s.Policies = testbuilder.AllowImages("other:*")
	s.wantPhase(v1alpha1.SessionRunning, "")
	s.exitRunner(1, "").advanceClock(time.Minute).wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonImageNotAllowed)
}

// The operator may have ended between the record of an attempt and the creation of its Job.
func TestAnAttemptWithoutAJobIsNotContinuedAgainstAPolicy(t *testing.T) {
	s := newScenario(t)
	s.decideAndRecord()
	s.Policies = testbuilder.AllowImages("other:*")
	decision := s.decideAndRecord()
	require.True(t, decision.CreateJob == nil && decision.Status.Attempt.JobName == "", "the attempt continues: %+v", decision)
}

func envFromSecret(name, prefix string, optional *bool) corev1.EnvFromSource {
	return corev1.EnvFromSource{Prefix: prefix, SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Optional: optional}}
}

func envFromConfigMap(name string) corev1.EnvFromSource {
	return corev1.EnvFromSource{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}}
}

func TestEnvFromSetsOneVariableForEachAllowedKey(t *testing.T) {
	s := newScenario(t, func(spec *v1alpha1.AgenticSessionSpec) {
		spec.EnvFrom = []corev1.EnvFromSource{envFromSecret("model", "MODEL_", new(true)), envFromConfigMap("settings"), envFromSecret("later", "", nil)}
		spec.EnvironmentVariables = map[string]v1alpha1.EnvironmentValue{"LANGUAGE": "en"}
	})
	testbuilder.RunnerContainer(&s.Runner.Spec).Env = []corev1.EnvVar{{Name: "HTTPS_PROXY", Value: "http://127.0.0.1:3128"}}
	s.Runner.Spec.Allowed.Secrets = []v1alpha1.SessionSource{
		testbuilder.Source("model", "token", "url"), testbuilder.Source("later", "COLOR"), testbuilder.Source("unused", "a"),
	}
	s.Runner.Spec.Allowed.ConfigMaps = []v1alpha1.SessionSource{testbuilder.Source("settings", "COLOR", "LANGUAGE", "HTTPS_PROXY", "HOMEPAGE")}
	c := s.startAttempt().newestJob().Spec.Template.Spec.Containers[0]
	require.True(t, len(c.EnvFrom) == 0, "the Pod has envFrom %+v, which sets each key", c.EnvFrom)
	secret := func(name, key string, optional *bool) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: key, Optional: optional}}
	}
	configMap := &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}, Key: "HOMEPAGE"}}
	want := []corev1.EnvVar{
		{Name: "COLOR", ValueFrom: secret("later", "COLOR", nil)}, // the last source takes precedence
		{Name: "HOMEPAGE", ValueFrom: configMap},
		{Name: "MODEL_token", ValueFrom: secret("model", "token", new(true))},
		{Name: "MODEL_url", ValueFrom: secret("model", "url", new(true))},
	}
	require.Equal(t, want, c.Env[len(c.Env)-len(want):])
	names := map[string]int{}
	for _, variable := range c.Env {
		names[variable.Name]++
	}
	require.True(t, names["LANGUAGE"] == 1 && names["HTTPS_PROXY"] == 1, "a variable is set twice: %v", names)
}

func TestSecretMountsContainOnlyAllowedKeys(t *testing.T) {
	s := newScenario(t, func(spec *v1alpha1.AgenticSessionSpec) {
		spec.SecretMounts = []v1alpha1.SecretMount{{LocalReference: v1alpha1.LocalReference{Name: "git"}}, {LocalReference: v1alpha1.LocalReference{Name: "model"}, Optional: true}}
	})
	s.Runner.Spec.Allowed.Secrets = []v1alpha1.SessionSource{testbuilder.Source("git"), testbuilder.Source("model", "token", "ca.crt")}
	items := map[string][]corev1.KeyToPath{}
	for _, volume := range s.startAttempt().newestJob().Spec.Template.Spec.Volumes {
		if volume.Secret != nil {
			items[volume.Secret.SecretName] = volume.Secret.Items
		}
	}
	require.True(t, len(items["git"]) == 0, "a Secret without a list of keys has the items %v", items["git"])
	require.Equal(t, []corev1.KeyToPath{{Key: "token", Path: "token"}, {Key: "ca.crt", Path: "ca.crt"}}, items["model"])
}
