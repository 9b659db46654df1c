package sequentialjob

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func TestPodSecurityWarningsNameTheStepsAndWhatTheyLack(t *testing.T) {
	privileged := testbuilder.ChangeContainer(func(c *corev1.Container) { c.SecurityContext = &corev1.SecurityContext{Privileged: new(true)} })
	sj := sequence("build").Step("migrate", privileged).Finally("clean").Obj()
	enforce := func(level string) map[string]string {
		return map[string]string{"pod-security.kubernetes.io/enforce": level, "pod-security.kubernetes.io/enforce-version": "v1.36"}
	}
	for name, test := range map[string]struct {
		labels map[string]string
		want   []string
	}{
		"no level":   {nil, nil},
		"privileged": {enforce("privileged"), nil},
		"baseline":   {enforce("baseline"), []string{`spec.containers[1]: the namespace enforces PodSecurity "baseline:v1.36" and will refuse the Pod: privileged`}},
		"restricted": {enforce("restricted"), []string{
			`spec.containers[0], spec.containers[2]: the namespace enforces PodSecurity "restricted:v1.36" and will refuse the Pod: allowPrivilegeEscalation != false, unrestricted capabilities, runAsNonRoot != true, seccompProfile`,
			`spec.containers[1]: the namespace enforces PodSecurity "restricted:v1.36" and will refuse the Pod: privileged, allowPrivilegeEscalation != false, unrestricted capabilities, runAsNonRoot != true, seccompProfile`,
		}},
		"only a warning": {map[string]string{"pod-security.kubernetes.io/warn": "restricted"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, warning := range PodSecurityWarnings(sj, test.labels) {
				violations, advice, _ := strings.Cut(warning, "; ")
				assert.Equal(t, "advice", "spec.template.securityProfile: Restricted sets what is missing", advice)
				got = append(got, violations)
			}
			assert.Equal(t, "warnings", test.want, got)
		})
	}
	sj.Spec.Template = &v1alpha1.PodTemplate{SecurityProfile: v1alpha1.SecurityRestricted}
	sj.Spec.Containers = sj.Spec.Containers[:1]
	assert.Equal(t, "warnings with the profile Restricted", []string(nil), PodSecurityWarnings(sj, enforce("restricted")))
}
