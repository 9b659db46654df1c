package sequentialjob

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func overlay(patch string) testbuilder.StepOption {
	return testbuilder.WithStepOptions(func(o *v1alpha1.StepOptions) { o.PodTemplate = &runtime.RawExtension{Raw: []byte(patch)} })
}

func TestOverlayPatchesTheTemplateOfOneStep(t *testing.T) {
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"team": "ml"}},
		Spec: corev1.PodSpec{
			ServiceAccountName: "default", NodeSelector: map[string]string{"pool": "cpu"},
			Tolerations:    []corev1.Toleration{{Key: "spot"}},
			Volumes:        []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
			InitContainers: []corev1.Container{{Name: "proxy", Image: "proxy:1"}},
		},
	}
	patch := `{"metadata": {"labels": {"gpu": "true"}}, "spec": {
		"serviceAccountName": "trainer", "nodeSelector": {"pool": "gpu"}, "tolerations": [{"key": "gpu"}],
		"volumes": [{"name": "models", "emptyDir": {}}],
		"initContainers": [{"name": "proxy", "$patch": "delete"}, {"name": "fetch", "image": "fetch:1"}]}}`
	sj := sequence("prep").Step("train", overlay(patch)).Template(template).Obj()
	require.NoError(t, Validate(sj).ToAggregate())
	prep, train := podTemplate(sj, &sj.Spec.Containers[0]).Spec, podTemplate(sj, &sj.Spec.Containers[1]).Spec
	require.True(t, prep.ServiceAccountName == "default" && prep.NodeSelector["pool"] == "cpu" && len(prep.Volumes) == 1,
		"the overlay changes another step: %+v", prep)
	want := corev1.PodSpec{
		ServiceAccountName: "trainer", NodeSelector: map[string]string{"pool": "gpu"}, Tolerations: []corev1.Toleration{{Key: "gpu"}},
		Volumes:        []corev1.Volume{{Name: "models", VolumeSource: template.Spec.Volumes[0].VolumeSource}, template.Spec.Volumes[0]},
		InitContainers: []corev1.Container{{Name: "fetch", Image: "fetch:1"}},
		Containers:     []corev1.Container{sj.Spec.Containers[1].Container}, RestartPolicy: corev1.RestartPolicyNever,
	}
	want.Containers[0].Name = "train"
	assert.Equal(t, "Pod of train", want, train)
	if labels := podTemplate(sj, &sj.Spec.Containers[1]).Labels; labels["team"] != "ml" || labels["gpu"] != "true" {
		t.Errorf("labels %v", labels)
	}
}

func TestOverlayIsValidatedStrictly(t *testing.T) {
	for name, test := range map[string]struct{ patch, field, detail string }{
		"a typo":              {`{"spec": {"nodeSelektor": {}}}`, "", `unknown field "spec.nodeSelektor"`},
		"the case of a field": {`{"spec": {"nodeselector": {}}}`, "", `unknown field "spec.nodeselector"`},
		"a wrong type":        {`{"spec": {"nodeSelector": "gpu"}}`, "", "cannot unmarshal string"},
		"a container":         {`{"spec": {"containers": [{"name": "step"}]}}`, "", "cannot have containers"},
		"a list":              {`[]`, "", "must be an object"},
		"restartPolicy":       {`{"spec": {"restartPolicy": "Always"}}`, ".spec.restartPolicy", ""},
		"reserved labels":     {`{"metadata": {"labels": {"yardmaster.dev/step": "x"}}}`, ".metadata.labels[yardmaster.dev/step]", ""},
		"a step's name":       {`{"spec": {"initContainers": [{"name": "build", "image": "x"}]}}`, ".spec.initContainers[0].name", ""},
		"the workspace":       {`{"spec": {"volumes": [{"name": "workspace"}]}}`, ".spec.volumes", ""},
	} {
		t.Run(name, func(t *testing.T) {
			sj := sequence().Step("build", overlay(test.patch)).Workspace(v1alpha1.WorkspaceDelete).Obj()
			errs := Validate(sj)
			if len(errs) == 0 || errs[0].Field != "spec.containers[0].step.podTemplate"+test.field || !strings.Contains(errs[0].Detail, test.detail) {
				t.Errorf("errors %v, want one about %q with %q", errs, test.field, test.detail)
			}
		})
	}
}

func TestRestrictedProfileFillsInWhatIsNotSet(t *testing.T) {
	sj := sequence("build").Step("image", testbuilder.ChangeContainer(func(c *corev1.Container) {
		c.SecurityContext = &corev1.SecurityContext{RunAsUser: new(int64(1000)), Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_BIND_SERVICE"}}}
	})).Step("mount", testbuilder.ChangeContainer(func(c *corev1.Container) {
		c.SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
	})).Template(corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		SecurityContext: &corev1.PodSecurityContext{FSGroup: new(int64(7))}, InitContainers: []corev1.Container{{Name: "init"}},
	}}).Obj()
	sj.Spec.Template.SecurityProfile = v1alpha1.SecurityRestricted

	build := podTemplate(sj, &sj.Spec.Containers[0]).Spec
	want := &corev1.PodSecurityContext{
		RunAsNonRoot: new(true), RunAsUser: new(int64(65532)), RunAsGroup: new(int64(65532)), FSGroup: new(int64(7)),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	assert.Equal(t, "Pod", want, build.SecurityContext)
	restricted := &corev1.SecurityContext{AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}
	for _, container := range append(build.InitContainers, build.Containers...) {
		assert.Equal(t, "container "+container.Name, restricted, container.SecurityContext)
	}
	image := podTemplate(sj, &sj.Spec.Containers[1]).Spec.Containers[0].SecurityContext
	require.True(t, *image.RunAsUser == 1000 && len(image.Capabilities.Add) == 1 && len(image.Capabilities.Drop) == 1,
		"what the step sets is not kept: %+v", image)
	if mount := podTemplate(sj, &sj.Spec.Containers[2]).Spec.Containers[0].SecurityContext; mount.AllowPrivilegeEscalation != nil {
		t.Errorf("a privileged container: %+v", mount)
	}
	sj.Spec.Template.Spec = corev1.PodSpec{OS: &corev1.PodOS{Name: corev1.Windows}, InitContainers: []corev1.Container{{Name: "init"}}}
	windows := podTemplate(sj, &sj.Spec.Containers[0]).Spec
	assert.Equal(t, "Pod for Windows", &corev1.PodSecurityContext{RunAsNonRoot: new(true)}, windows.SecurityContext)
	for _, container := range append(windows.InitContainers, windows.Containers...) {
		require.True(t, container.SecurityContext == nil, "container %s of a Pod for Windows: %+v", container.Name, container.SecurityContext)
	}
	plain := sequence("build").Obj()
	require.True(t, podTemplate(plain, &plain.Spec.Containers[0]).Spec.SecurityContext == nil, "without the profile, the Pod has a security context")
}
