package agenticsession

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

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
	if len(c.EnvFrom) > 0 {
		t.Errorf("the Pod has envFrom %+v, which sets each key", c.EnvFrom)
	}
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
	if diff := cmp.Diff(want, c.Env[len(c.Env)-len(want):]); diff != "" {
		t.Errorf("variables (-want, +got):\n%s", diff)
	}
	names := map[string]int{}
	for _, variable := range c.Env {
		names[variable.Name]++
	}
	if names["LANGUAGE"] != 1 || names["HTTPS_PROXY"] != 1 {
		t.Errorf("a variable is set twice: %v", names)
	}
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
	if len(items["git"]) > 0 {
		t.Errorf("a Secret without a list of keys has the items %v", items["git"])
	}
	if diff := cmp.Diff([]corev1.KeyToPath{{Key: "token", Path: "token"}, {Key: "ca.crt", Path: "ca.crt"}}, items["model"]); diff != "" {
		t.Errorf("items (-want, +got):\n%s", diff)
	}
}

// A refusal says what to add to the SessionRunner.
func TestARefusedSourceSaysWhatToAdd(t *testing.T) {
	for title, row := range map[string]struct {
		allowed []v1alpha1.SessionSource
		change  func(spec *v1alpha1.AgenticSessionSpec)
		want    string
	}{
		"a Secret as files": {
			change: func(spec *v1alpha1.AgenticSessionSpec) {
				spec.SecretMounts = []v1alpha1.SecretMount{{LocalReference: v1alpha1.LocalReference{Name: "git"}}}
			},
			want: "SessionRunner default does not allow Secret git: add it to allowed.secrets of the SessionRunner",
		},
		"a Secret as variables": {
			change: func(spec *v1alpha1.AgenticSessionSpec) {
				spec.EnvFrom = []corev1.EnvFromSource{envFromSecret("git", "", nil)}
			},
			want: "SessionRunner default does not allow Secret git: add it, with the keys to use, to allowed.secrets of the SessionRunner",
		},
		"a Secret without keys as variables": {
			allowed: []v1alpha1.SessionSource{testbuilder.Source("git")},
			change: func(spec *v1alpha1.AgenticSessionSpec) {
				spec.EnvFrom = []corev1.EnvFromSource{envFromSecret("git", "", nil)}
			},
			want: "SessionRunner default lists no keys of Secret git, so it can only be mounted: use secretMounts, or add the keys to allowed.secrets of the SessionRunner",
		},
		"a ConfigMap": {
			change: func(spec *v1alpha1.AgenticSessionSpec) { spec.EnvFrom = []corev1.EnvFromSource{envFromConfigMap("a")} },
			want:   "SessionRunner default does not allow ConfigMap a: add it, with the keys to use, to allowed.configMaps of the SessionRunner",
		},
		"a reserved variable": {
			allowed: []v1alpha1.SessionSource{testbuilder.Source("git", "D_PRELOAD")},
			change: func(spec *v1alpha1.AgenticSessionSpec) {
				spec.EnvFrom = []corev1.EnvFromSource{envFromSecret("git", "L", nil)}
			},
			want: "key D_PRELOAD of Secret git sets the variable LD_PRELOAD, which is reserved: set another prefix",
		},
	} {
		t.Run(title, func(t *testing.T) {
			s := newScenario(t, row.change)
			s.Runner.Spec.Allowed.Secrets = row.allowed
			s.wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonNotAllowed)
			if message := s.findCondition(v1alpha1.ConditionSpecAccepted).Message; !strings.Contains(message, row.want) {
				t.Errorf("message %q, want %q", message, row.want)
			}
		})
	}
}
