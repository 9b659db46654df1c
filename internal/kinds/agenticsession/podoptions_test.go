package agenticsession

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
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
	decision := s.decideAndRecord()
	if decision.CreateJob == nil {
		t.Fatalf("%+v", decision.Status.Conditions)
	}
	created := decision.CreateJob.Spec.Template
	pod := created.Spec
	if *pod.HostUsers || pod.NodeSelector["pool"] != "agents" || pod.PriorityClassName != "low" || pod.Tolerations[0].Key != "agents" ||
		created.Labels["team"] != "a" || created.Labels[LabelSessionUID] != "session" || created.Annotations["cost"] != "7" {
		t.Errorf("%+v", created)
	}
	for _, c := range append(pod.InitContainers, pod.Containers...) {
		env := map[string]string{}
		for _, variable := range c.Env {
			env[variable.Name] = variable.Value
		}
		if want := map[string]corev1.PullPolicy{"runner": corev1.PullAlways, "tools": corev1.PullNever}[c.Name]; c.ImagePullPolicy != want || env["SSL_CERT_FILE"] != "/etc/agentic-ca/ca.crt" || env["NODE_EXTRA_CA_CERTS"] != "/etc/agentic-ca/ca.crt" {
			t.Errorf("container %s: %s, %v", c.Name, c.ImagePullPolicy, env)
		}
		if c.Name == v1alpha1.RunnerContainer && env["CURL_CA_BUNDLE"] != "/own.pem" {
			t.Errorf("the variable of the SessionRunner is %s", env["CURL_CA_BUNDLE"])
		}
	}
	mounted := map[string]string{}
	for _, mount := range pod.Containers[0].VolumeMounts {
		if mount.ReadOnly {
			mounted[mount.Name] = mount.MountPath
		}
	}
	want := map[string]string{"runner-models": "/models", "runner-docs": "/srv/docs", "ca-bundle": "/etc/agentic-ca"}
	for name, at := range want {
		if mounted[name] != at {
			t.Errorf("volume %s is mounted read-only at %q, want %s", name, mounted[name], at)
		}
	}
	if diff := cmp.Diff(created.Labels, decision.DryRunPod.Labels); diff != "" || decision.DryRunPod.Annotations["cost"] != "7" {
		t.Errorf("the tested Pod has other metadata (-Job, +Pod):\n%s", diff)
	}
}

func TestInvalidPodOptionsAreRefused(t *testing.T) {
	volume := func(mountPath string) func(*v1alpha1.SessionRunnerSpec) {
		return func(spec *v1alpha1.SessionRunnerSpec) {
			testbuilder.MountVolume(spec, "a", mountPath, testbuilder.ConfigMapVolume("a"))
		}
	}
	label := func(key, value string) func(*v1alpha1.SessionRunnerSpec) {
		return func(spec *v1alpha1.SessionRunnerSpec) {
			spec.Template = &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{key: value}}}
		}
	}
	jobLabel := func(key, value string) func(*v1alpha1.SessionRunnerSpec) {
		return func(spec *v1alpha1.SessionRunnerSpec) {
			spec.JobMetadata = &v1alpha1.ObjectMetadata{Labels: map[string]string{key: value}}
		}
	}
	annotation := func(key string) func(*v1alpha1.SessionRunnerSpec) {
		return func(spec *v1alpha1.SessionRunnerSpec) {
			spec.Template = &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{key: "x"}}}
		}
	}
	for title, test := range map[string]struct {
		change func(*v1alpha1.SessionRunnerSpec)
		want   string
	}{
		"a relative path":              {volume("models"), "not an absolute path"},
		"a path with ..":               {volume("/srv/../workspace"), "not an absolute path"},
		"the workspace":                {volume("/workspace"), "overlaps with /workspace"},
		"a directory in the workspace": {volume("/workspace/models"), "overlaps with /workspace"},
		"the parent of a directory":    {volume("/home"), "overlaps with /home/agent"},
		"the inputs":                   {volume("/etc/agentic"), "overlaps with /etc/agentic"},
		"tokens":                       {volume("/var/run/secrets"), "overlaps with /var/run/secrets/kubernetes.io"},
		"the result":                   {volume("/dev/termination-log"), "overlaps with /dev"},
		"the operator's label":         {label(LabelSessionUID, "other"), "the key is reserved"},
		"the label of another owner":   {label("yardmaster.dev/workerpool", "mail"), "the key is reserved"},
		"managed-by":                   {label(v1alpha1.LabelManagedBy, "me"), "the key is reserved"},
		"a label of Jobs":              {label("batch.kubernetes.io/job-name", "other"), "the key is reserved"},
		"an old label of Jobs":         {label("job-name", "other"), "the key is reserved"},
		"an invalid label":             {label("team", "a b"), "spec.template.metadata.labels"},
		"the operator's label of Jobs": {jobLabel(LabelSessionUID, "other"), "spec.jobMetadata.labels[" + LabelSessionUID + "]: Forbidden: the key is reserved"},
		"an invalid label of Jobs":     {jobLabel("kueue.x-k8s.io/queue-name", "a b"), "spec.jobMetadata.labels"},
		"AppArmor":                     {annotation("container.apparmor.security.beta.kubernetes.io/runner"), "the key is reserved"},
		"an invalid node label": {func(spec *v1alpha1.SessionRunnerSpec) {
			testbuilder.RunnerPod(spec).NodeSelector = map[string]string{"a b": "c"}
		}, "spec.template.spec.nodeSelector"},
		"too much of anything": {func(spec *v1alpha1.SessionRunnerSpec) {
			spec.Allowed.Images = []string{strings.Repeat("x", decision.MaxSpecBytes)}
		}, "spec: Forbidden: " + decision.TooLargeMessage},
	} {
		t.Run(title, func(t *testing.T) {
			s := newScenario(t)
			test.change(&s.Runner.Spec)
			if errs := ValidateWithRunner(s.Session, s.Runner); len(errs) != 1 || !strings.Contains(errs[0].Error(), test.want) {
				t.Errorf("%v, want %q", errs, test.want)
			}
		})
	}
}

// A SessionRunner of an older CRD, or without one, may have any field of a Pod.
func TestFieldsOfATemplateThatDoNotExistHaveNoEffect(t *testing.T) {
	s := newFullScenario(t)
	testbuilder.MountVolume(&s.Runner.Spec, "docs", "/srv/docs", testbuilder.SecretVolume("docs"))
	want := s.decideAndRecord().CreateJob.Spec.Template
	for title, change := range map[string]func(pod *corev1.PodSpec){
		"the network of the node": func(pod *corev1.PodSpec) { pod.HostNetwork = true },
		"processes of the node":   func(pod *corev1.PodSpec) { pod.HostPID, pod.HostIPC, pod.ShareProcessNamespace = true, true, new(true) },
		"a node":                  func(pod *corev1.PodSpec) { pod.NodeName, pod.SchedulerName = "node", "other" },
		"an address": func(pod *corev1.PodSpec) {
			pod.HostAliases = []corev1.HostAlias{{IP: "10.0.0.1", Hostnames: []string{"a"}}}
		},
		"name servers": func(pod *corev1.PodSpec) {
			pod.DNSPolicy, pod.DNSConfig = corev1.DNSNone, &corev1.PodDNSConfig{Nameservers: []string{"10.0.0.1"}}
		},
		"the ServiceAccount's token": func(pod *corev1.PodSpec) {
			pod.AutomountServiceAccountToken, pod.DeprecatedServiceAccount = new(true), "admin"
		},
		"an unrestricted Pod": func(pod *corev1.PodSpec) {
			pod.SecurityContext.RunAsNonRoot, pod.SecurityContext.FSGroup = new(false), new(int64(0))
			pod.SecurityContext.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}
		},
		"an unrestricted runner":  func(pod *corev1.PodSpec) { weaken(&pod.Containers[0]) },
		"an unrestricted sidecar": func(pod *corev1.PodSpec) { weaken(&pod.InitContainers[0]) },
		"another image":           func(pod *corev1.PodSpec) { pod.Containers[0].Image = "evil:1" },
		"claims of devices": func(pod *corev1.PodSpec) {
			pod.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}}
			pod.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
		},
		"a writable mount": func(pod *corev1.PodSpec) {
			mount := &pod.Containers[0].VolumeMounts[0]
			mount.ReadOnly, mount.SubPath, mount.MountPropagation = false, "../..", new(corev1.MountPropagationBidirectional)
		},
		"other modes of files": func(pod *corev1.PodSpec) { pod.Volumes[0].Secret.DefaultMode = new(int32(0o777)) },
		"an ephemeral container": func(pod *corev1.PodSpec) {
			pod.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "x"}}}
		},
	} {
		t.Run(title, func(t *testing.T) {
			s := newFullScenario(t)
			testbuilder.MountVolume(&s.Runner.Spec, "docs", "/srv/docs", testbuilder.SecretVolume("docs"))
			change(testbuilder.RunnerPod(&s.Runner.Spec))
			decision := s.decideAndRecord()
			if decision.CreateJob == nil {
				t.Fatalf("%+v", decision.Status.Conditions)
			}
			if diff := cmp.Diff(want, decision.CreateJob.Spec.Template); diff != "" {
				t.Errorf("the Pod changed (-without, +with):\n%s", diff)
			}
		})
	}
}

func TestSidecarsMountVolumesReadOnlyAndTheWorkspaceWithWrites(t *testing.T) {
	s := newFullScenario(t)
	testbuilder.MountVolume(&s.Runner.Spec, "docs", "/srv/docs", testbuilder.ConfigMapVolume("docs"))
	sidecar := &testbuilder.RunnerPod(&s.Runner.Spec).InitContainers[0]
	sidecar.VolumeMounts = append(sidecar.VolumeMounts, corev1.VolumeMount{Name: "docs", MountPath: "/docs"})
	got := mountsOf(&s.decideAndRecord().CreateJob.Spec.Template.Spec.InitContainers[0])
	if docs := got["runner-docs"]; docs.MountPath != "/docs" || !docs.ReadOnly {
		t.Errorf("the volume is mounted as %+v", docs)
	}
	if workspace := got[workspaceVolume]; workspace.MountPath != workspacePath || workspace.ReadOnly {
		t.Errorf("the workspace is mounted as %+v", workspace)
	}
}
