package agenticsession

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

func TestPodHasTheOptionsOfItsSessionRunner(t *testing.T) {
	s := newFullScenario(t)
	spec := &s.Runner.Spec
	spec.HostUsers, spec.NodeSelector, spec.PriorityClassName, spec.ImagePullPolicy = new(false), map[string]string{"pool": "agents"}, "low", corev1.PullAlways
	spec.Tolerations = []corev1.Toleration{{Key: "agents", Operator: corev1.TolerationOpExists}}
	spec.PodMetadata = &v1alpha1.SessionPodMetadata{Labels: map[string]string{"team": "a"}, Annotations: map[string]string{"cost": "7"}}
	spec.CABundle = &v1alpha1.SessionCABundle{ConfigMap: "cas", Key: "all.pem"}
	spec.Env = append(spec.Env, corev1.EnvVar{Name: "CURL_CA_BUNDLE", Value: "/own.pem"})
	spec.Volumes = []v1alpha1.SessionVolume{{Name: "models", MountPath: "/models", PersistentVolumeClaim: "models"}, {Name: "docs", MountPath: "/srv/docs", ConfigMap: "docs"}}
	decision := s.decideAndRecord()
	if decision.CreateJob == nil {
		t.Fatalf("%+v", decision.Status.Conditions)
	}
	template := decision.CreateJob.Spec.Template
	pod := template.Spec
	if *pod.HostUsers || pod.NodeSelector["pool"] != "agents" || pod.PriorityClassName != "low" || pod.Tolerations[0].Key != "agents" ||
		template.Labels["team"] != "a" || template.Labels[LabelSessionUID] != "session" || template.Annotations["cost"] != "7" {
		t.Errorf("%+v", template)
	}
	for _, c := range append(pod.InitContainers, pod.Containers...) {
		env := map[string]string{}
		for _, variable := range c.Env {
			env[variable.Name] = variable.Value
		}
		if c.ImagePullPolicy != corev1.PullAlways || env["SSL_CERT_FILE"] != "/etc/agentic-ca/ca.crt" || env["NODE_EXTRA_CA_CERTS"] != "/etc/agentic-ca/ca.crt" {
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
	if diff := cmp.Diff(template.Labels, decision.DryRunPod.Labels); diff != "" || decision.DryRunPod.Annotations["cost"] != "7" {
		t.Errorf("the tested Pod has other metadata (-Job, +Pod):\n%s", diff)
	}
}

func TestInvalidPodOptionsAreRefused(t *testing.T) {
	volume := func(mountPath string) func(*v1alpha1.SessionRunnerSpec) {
		return func(spec *v1alpha1.SessionRunnerSpec) {
			spec.Volumes = []v1alpha1.SessionVolume{{Name: "a", MountPath: mountPath, ConfigMap: "a"}}
		}
	}
	label := func(key, value string) func(*v1alpha1.SessionRunnerSpec) {
		return func(spec *v1alpha1.SessionRunnerSpec) {
			spec.PodMetadata = &v1alpha1.SessionPodMetadata{Labels: map[string]string{key: value}}
		}
	}
	jobLabel := func(key, value string) func(*v1alpha1.SessionRunnerSpec) {
		return func(spec *v1alpha1.SessionRunnerSpec) {
			spec.JobMetadata = &v1alpha1.SessionJobMetadata{Labels: map[string]string{key: value}}
		}
	}
	annotation := func(key string) func(*v1alpha1.SessionRunnerSpec) {
		return func(spec *v1alpha1.SessionRunnerSpec) {
			spec.PodMetadata = &v1alpha1.SessionPodMetadata{Annotations: map[string]string{key: "x"}}
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
		"tokens":                       {volume("/var/run/secrets/tokens"), "overlaps with /var/run/secrets"},
		"the result":                   {volume("/dev/termination-log"), "overlaps with /dev"},
		"the operator's label":         {label(LabelSessionUID, "other"), "is reserved"},
		"the label of another owner":   {label("yardmaster.dev/workerpool", "mail"), "is reserved"},
		"managed-by":                   {label(v1alpha1.LabelManagedBy, "me"), "is reserved"},
		"a label of Jobs":              {label("batch.kubernetes.io/job-name", "other"), "is reserved"},
		"an old label of Jobs":         {label("job-name", "other"), "is reserved"},
		"an invalid label":             {label("team", "a b"), "podMetadata.labels"},
		"the operator's label of Jobs": {jobLabel(LabelSessionUID, "other"), "jobMetadata: " + LabelSessionUID + " is reserved"},
		"an invalid label of Jobs":     {jobLabel("kueue.x-k8s.io/queue-name", "a b"), "jobMetadata.labels"},
		"AppArmor":                     {annotation("container.apparmor.security.beta.kubernetes.io/runner"), "is reserved"},
		"an invalid node label":        {func(spec *v1alpha1.SessionRunnerSpec) { spec.NodeSelector = map[string]string{"a b": "c"} }, "nodeSelector"},
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
