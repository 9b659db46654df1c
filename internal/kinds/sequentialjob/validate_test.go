package sequentialjob

import (
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func TestValidate(t *testing.T) {
	pod := func(spec corev1.PodSpec) corev1.PodTemplateSpec { return corev1.PodTemplateSpec{Spec: spec} }
	labels := func(key string) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{key: "x"}}}
	}
	annotations := func(key string) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{key: "x"}}}
	}
	oneStep := func() *testbuilder.SequentialJobBuilder { return sequence("build") }
	withMount := corev1.Container{VolumeMounts: []corev1.VolumeMount{{Name: "src", MountPath: "/src"}}}
	const inTemplate = "spec.template.metadata."
	const missing = "spec.template.spec.containers[0].volumeMounts[0].name: Not found"
	mount := func(volume, path string) testbuilder.StepOption {
		return testbuilder.ChangeContainer(func(c *corev1.Container) {
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: path})
		})
	}
	podFailurePolicy := testbuilder.WithStepOptions(func(o *v1alpha1.StepOptions) { o.PodFailurePolicy = &batchv1.PodFailurePolicy{} })
	always := testbuilder.ChangeContainer(func(c *corev1.Container) { c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways) })

	for name, test := range map[string]struct {
		sj   *testbuilder.SequentialJobBuilder
		want string // each error in a line
	}{
		"a step with an image is valid":        {oneStep(), ""},
		"the image may come from the template": {sequence().Step("build", testbuilder.StepImage("")).Defaults(corev1.Container{Image: "base"}), ""},
		"no image":                             {oneStep().Finally("cleanup", testbuilder.StepImage("")), "spec.containers[1].image: Required value"},
		"an image with a leading space":        {sequence().Step("build", testbuilder.StepImage(" tool:1")), "spec.containers[0].image: Invalid value"},
		"an invalid annotation key":            {oneStep().Template(annotations("my note")), inTemplate + "annotations: Invalid value"},
		"the operator's labels":                {oneStep().Template(labels("yardmaster.dev/step")), inTemplate + "labels[yardmaster.dev/step]: Forbidden"},
		"the Job controller's label":           {oneStep().Template(labels(batchv1.JobNameLabel)), inTemplate + "labels[batch.kubernetes.io/job-name]: Forbidden"},
		"its legacy labels":                    {oneStep().Template(labels("job-name")), inTemplate + "labels[job-name]: Forbidden"},
		"the operator's annotations":           {oneStep().Template(annotations("yardmaster.dev/run")), inTemplate + "annotations[yardmaster.dev/run]: Forbidden"},
		"the operator's labels on Jobs": {
			oneStep().JobLabel("yardmaster.dev/sequentialjob-uid", "x"), "spec.jobMetadata.labels[yardmaster.dev/sequentialjob-uid]: Forbidden",
		},
		"another manager of Jobs":     {oneStep().JobLabel(v1alpha1.LabelManagedBy, "Helm"), "spec.jobMetadata.labels[app.kubernetes.io/managed-by]: Forbidden"},
		"a recommended label on Jobs": {oneStep().JobLabel("app.kubernetes.io/part-of", "shop"), ""},
		"an invalid label value":      {oneStep().JobLabel("team", "not valid!"), "spec.jobMetadata.labels: Invalid value"},
		"a queue label on Jobs":       {oneStep().JobLabel("kueue.x-k8s.io/queue-name", "batch"), ""},
		"restartPolicy Always": {
			oneStep().Template(pod(corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways})), "spec.template.spec.restartPolicy: Unsupported value",
		},
		"another container in the template": {
			oneStep().Template(pod(corev1.PodSpec{Containers: []corev1.Container{{Name: "proxy"}}})),
			"spec.template.spec.containers[0].name: Invalid value",
		},
		"a second container with defaults": {
			oneStep().Template(pod(corev1.PodSpec{Containers: []corev1.Container{{Name: "step"}, {Name: "step"}}})),
			"spec.template.spec.containers[1].name: Invalid value",
		},
		"a sidecar": {oneStep().Template(pod(corev1.PodSpec{InitContainers: []corev1.Container{testbuilder.Sidecar("proxy", "")}})), ""},
		"an init container with a step's name": {
			oneStep().Template(pod(corev1.PodSpec{InitContainers: []corev1.Container{{Name: "build"}}})),
			"spec.template.spec.initContainers[0].name: Duplicate value",
		},
		"a step with restartPolicy Always": {sequence().Step("build", always), "spec.containers[0].restartPolicy: Forbidden"},
		"podFailurePolicy with Never":      {sequence().Step("build", podFailurePolicy), ""},
		"podFailurePolicy with OnFailure": {
			sequence().Step("build", podFailurePolicy).Template(pod(corev1.PodSpec{RestartPolicy: corev1.RestartPolicyOnFailure})),
			"spec.containers[0].step.podFailurePolicy: Forbidden",
		},
		"a mount of an existing volume": {sequence().Step("build", mount("src", "/src")).Template(pod(corev1.PodSpec{Volumes: []corev1.Volume{{Name: "src"}}})), ""},
		"a mount of a missing volume":   {sequence().Step("build", mount("src", "/src")), "spec.containers[0].volumeMounts[0].name: Not found"},
		"a second mount of the step, of a missing volume": {
			sj: sequence().Step("build", mount("src", "/src"), mount("cache", "/cache")).Template(pod(corev1.PodSpec{
				Volumes:    []corev1.Volume{{Name: "src"}, {Name: "etc"}},
				Containers: []corev1.Container{{Name: "step", VolumeMounts: []corev1.VolumeMount{{Name: "etc", MountPath: "/etc/app"}}}},
			})),
			want: "spec.containers[0].volumeMounts[1].name: Not found",
		},
		"a mount of a missing volume in the template": {oneStep().Defaults(withMount), missing},
		"the same, beside a workspace":                {oneStep().Workspace(v1alpha1.WorkspaceDelete).Defaults(withMount), missing},
		"a second mount of the workspace":             {sequence().Step("build", mount("workspace", "/also")).Workspace(v1alpha1.WorkspaceDelete), ""},
		"a volume with the name of the workspace volume": {
			oneStep().Workspace(v1alpha1.WorkspaceDelete).Template(pod(corev1.PodSpec{Volumes: []corev1.Volume{{Name: "workspace"}}})),
			"spec.template.spec.volumes: Forbidden",
		},
		"a volume named workspace if there is no workspace": {oneStep().Template(pod(corev1.PodSpec{Volumes: []corev1.Volume{{Name: "workspace"}}})), ""},
		"all errors are reported together": {
			sequence().Step("build", testbuilder.StepImage("")).Step("test", mount("src", "/src")).JobLabel("job-name", "x"),
			"spec.jobMetadata.labels[job-name]: Forbidden\nspec.containers[0].image: Required value\nspec.containers[1].volumeMounts[0].name: Not found",
		},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, "errors", test.want, strings.Join(errorFields(Validate(test.sj.Obj())), "\n"))
		})
	}
}

func TestJobsCanBeExemptFromReports(t *testing.T) {
	annotations := map[string]string{v1alpha1.AnnotationReportIgnore: "true", v1alpha1.AnnotationReportRunningTooLong: "10d"}
	sj := sequence("build").Obj()
	sj.Spec.JobMetadata = &v1alpha1.ObjectMetadata{Annotations: annotations}
	errs := Validate(sj)
	require.True(t, len(errs) == 0, "jobMetadata: %v", errs)
	job := stepJob(sj, &sj.Spec.Containers[0], 1, 1)
	for key, want := range annotations {
		assert.Equal(t, "annotation "+key, want, job.Annotations[key])
	}
	annotations[v1alpha1.AnnotationSuspended] = "x"
	want := []string{"spec.jobMetadata.annotations[yardmaster.dev/suspended]: Forbidden"}
	assert.Equal(t, "errors with another annotation of the operator", want, errorFields(Validate(sj)))
}

func TestTemplateLabelsDoNotOverrideReservedLabels(t *testing.T) {
	// Validate refuses these labels. Even without validation they have no effect.
	sj := sequence("build").JobLabel(v1alpha1.LabelSequentialJobUID, "stolen").
		Template(corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{
			v1alpha1.LabelSequentialJobUID: "stolen", v1alpha1.LabelStep: "stolen",
		}}}).Obj()
	job := stepJob(sj, &sj.Spec.Containers[0], 1, 1)

	for where, labels := range map[string]map[string]string{"Job": job.Labels, "Pod template": job.Spec.Template.Labels} {
		want := map[string]string{
			v1alpha1.LabelSequentialJobUID: string(sj.UID), v1alpha1.LabelSequentialJob: "a", v1alpha1.LabelStep: "build",
			v1alpha1.LabelManagedBy: v1alpha1.ManagedByValue, labelAppName: "sequentialjob",
			labelAppInstance: "a", labelAppPartOf: "a", labelAppComponent: "build",
		}
		assert.Equal(t, "labels of the "+where, want, labels)
	}
}

func TestRecommendedLabelsOfUsersAreKept(t *testing.T) {
	users := map[string]string{
		labelAppName: "shop", labelAppInstance: "shop-1", labelAppComponent: "etl", labelAppPartOf: "store",
		v1alpha1.LabelManagedBy: "Helm", "app.kubernetes.io/version": "7",
	}
	sj := sequence("build").Workspace(v1alpha1.WorkspaceDelete).
		Template(corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: users}}).Obj()
	sj.Labels = map[string]string{labelAppPartOf: "warehouse"}
	job := stepJob(sj, &sj.Spec.Containers[0], 1, 1)
	for key, want := range users {
		assert.Equal(t, "label "+key+" of the Pod", want, job.Spec.Template.Labels[key])
	}
	for where, labels := range map[string]map[string]string{"Job": job.Labels, "workspace": workspaceClaim(sj).Labels} {
		require.True(t, labels[labelAppPartOf] == "warehouse" && labels[v1alpha1.LabelManagedBy] == v1alpha1.ManagedByValue,
			"labels of the %s: %v", where, labels)
	}
}

func errorFields(errs field.ErrorList) []string {
	var all []string
	for _, err := range errs {
		all = append(all, err.Field+": "+err.Type.String())
	}
	return all
}
