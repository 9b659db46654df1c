package sequentialjob

import (
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
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
	perIndex := testbuilder.WithStepOptions(func(o *v1alpha1.StepOptions) { o.BackoffLimitPerIndex = new(int32(1)) })
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
		"the operator's labels on Jobs":        {oneStep().JobLabel("yardmaster.dev/step", "x"), "spec.jobMetadata.labels[yardmaster.dev/step]: Forbidden"},
		"another manager of Jobs":              {oneStep().JobLabel(v1alpha1.LabelManagedBy, "Helm"), "spec.jobMetadata.labels[app.kubernetes.io/managed-by]: Forbidden"},
		"a recommended label on Jobs":          {oneStep().JobLabel("app.kubernetes.io/part-of", "shop"), ""},
		"an invalid label value":               {oneStep().JobLabel("team", "not valid!"), "spec.jobMetadata.labels: Invalid value"},
		"a queue label on Jobs":                {oneStep().JobLabel("kueue.x-k8s.io/queue-name", "batch"), ""},
		"restartPolicy Always":                 {oneStep().Template(pod(corev1.PodSpec{RestartPolicy: "Always"})), "spec.template.spec.restartPolicy: Unsupported value"},
		"another container in the template": {
			oneStep().Template(pod(corev1.PodSpec{Containers: []corev1.Container{{Name: "proxy"}}})), "spec.template.spec.containers[0].name: Invalid value",
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
		"a step with restartPolicy Always":                     {sequence().Step("build", always), "spec.containers[0].restartPolicy: Forbidden"},
		"podFailurePolicy and backoffLimitPerIndex with Never": {sequence().Step("build", podFailurePolicy, perIndex), ""},
		"podFailurePolicy and backoffLimitPerIndex with OnFailure": {
			sequence().Step("build", podFailurePolicy, perIndex).Template(pod(corev1.PodSpec{RestartPolicy: corev1.RestartPolicyOnFailure})),
			"spec.containers[0].step.podFailurePolicy: Forbidden\nspec.containers[0].step.backoffLimitPerIndex: Forbidden",
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
			v1alpha1.LabelManagedBy: v1alpha1.ManagedByValue,
		}
		assert.Equal(t, "labels of the "+where, want, labels)
	}
}

func TestRecommendedLabelsOfUsersAreKept(t *testing.T) {
	users := map[string]string{
		labelAppName: "shop", labelAppInstance: "shop-1", "app.kubernetes.io/component": "etl", labelAppPartOf: "store",
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
		require.True(t, labels[labelAppPartOf] == "warehouse" && labels[v1alpha1.LabelManagedBy] == v1alpha1.ManagedByValue, "%s: %v", where, labels)
	}
}

func errorFields(errs field.ErrorList) []string {
	var all []string
	for _, err := range errs {
		all = append(all, err.Field+": "+err.Type.String())
	}
	return all
}

func when(expression string) testbuilder.StepOption {
	return testbuilder.WithStepOptions(func(o *v1alpha1.StepOptions) { o.When = expression })
}

func TestStepRunsOnlyIfItsExpressionIsTrue(t *testing.T) {
	for name, test := range map[string]struct{ expression, output, want string }{
		"an output that matches":  {expression: `steps.build.output == "changed"`, output: "changed", want: "deploy: Starting"},
		"an output that does not": {expression: `steps.build.output == "changed"`, output: "same", want: "deploy: Skipped, WhenFalse"},
		"a phase":                 {expression: `steps.build.phase == "Succeeded"`, want: "deploy: Starting"},
		"a parameter":             {expression: `parameters.ENV == "prod"`, want: "deploy: Skipped, WhenFalse"},
		"an output as a number":   {expression: `int(steps.build.output) > 3`, output: "5", want: "deploy: Starting"},
		"the outcome of the run":  {expression: `sequence.status == "Running"`, want: "deploy: Starting"},
		"a name in brackets":      {expression: `steps["build"].reason == ""`, want: "deploy: Starting"},
		"any step":                {expression: `steps.exists(s, steps[s].phase == "Failed")`, want: "deploy: Skipped, WhenFalse"},
		"a loop that costs too much": {
			expression: `[1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b, [1,2,3,4,5,6,7,8,9].all(c, [1,2,3,4,5,6,7,8,9].all(d, ` +
				`[1,2,3,4,5,6,7,8,9].all(e, steps.build.output.contains("y") == false)))))`,
			output: strings.Repeat("x", 1000), want: "deploy: Failed, WhenInvalid",
		},
		"an error in the evaluation": {expression: `int(steps.build.output) > 3`, output: "many", want: "deploy: Failed, WhenInvalid"},
	} {
		t.Run(name, func(t *testing.T) {
			sj := sequence().Step("build", testbuilder.RecordOutput()).Step("deploy", when(test.expression)).Obj()
			sj.Spec.Parameters = []v1alpha1.Parameter{{Name: "ENV", Value: "test"}}
			newTestEnv(t, sj).pass(wait(0), exits("build", 0, test.output), succeed("build"), steps("build: Succeeded", test.want))
		})
	}
}

func TestRunCompletesWithoutStepsThatAreNotWanted(t *testing.T) {
	runScenarios(t, map[string]scenario{
		"of several": {sequence().Step("first", when("false")).Step("build").
			Step("rollback", when(`steps.build.phase == "Failed"`)).Finally("notify", when(`sequence.status == "Failed"`)), story{
			succeed("build"), phase(v1alpha1.PhaseCompleted, v1alpha1.ReasonCompleted),
			steps("first: Skipped, WhenFalse", "build: Succeeded", "rollback: Skipped, WhenFalse", "notify: Skipped, WhenFalse"),
			func(s *testEnv) { assert.Equal(s.t, "progress", "1/1", FormatProgress(s.sj, false)) },
		}},
		"but not without one that a tolerated failure needs": {sequence().
			Step("build", testbuilder.ContinueOnFailure()).Step("rollback", when(`steps.build.phase == "Failed"`)), story{
			fail("build"), created("build", "rollback"),
		}},
		"also of an earlier run": {sequence().Step("first", when("false")).Step("build"), story{
			fail("build"), rerun("Failed"), steps("first: Skipped, WhenFalse", "build: Starting"),
			func(s *testEnv) { assert.Equal(s.t, "run of the skipped step", int32(1), s.stepStatus("first").Run) },
		}},
	})
}

func TestExpressionsAreTypeChecked(t *testing.T) {
	const ofStep, ofResult = "spec.containers[1].step.when", "spec.results[0].value"
	for title, test := range map[string]struct{ field, expression, want string }{
		"syntax":                {ofStep, "steps.build.output ==", "Syntax error"},
		"an unknown field":      {ofStep, `steps.build.outputs == ""`, "undefined field 'outputs'"},
		"an unknown variable":   {ofStep, `step.build.output == ""`, "undeclared reference to 'step'"},
		"types":                 {ofStep, `steps.build.output == 1`, "no matching overload"},
		"no bool":               {ofStep, `steps.build.output`, "has the type string"},
		"an unknown step":       {ofStep, `steps.biuld.output == ""`, `steps has no "biuld"`},
		"a later step":          {ofStep, `steps["ship"].output == ""`, `steps has no "ship"`},
		"the step itself":       {ofStep, `steps.deploy.output == ""`, `steps has no "deploy"`},
		"a parameter":           {ofStep, `parameters.DAY == ""`, `parameters has no "DAY"`},
		"a result":              {ofResult, `outputs.build.tag`, ""},
		"syntax of a result":    {ofResult, `1 +`, "Syntax error"},
		"a field in a result":   {ofResult, `steps.build.outcome`, "undefined field"},
		"an output in a result": {ofResult, `outputs.nope`, `outputs has no "nope"`},
		"a result's parameter":  {ofResult, `parameters.OTHER`, `parameters has no "OTHER"`},
	} {
		t.Run(title, func(t *testing.T) {
			sj := sequence().Step("build", jsonOutput).Step("deploy", when("true")).Step("ship").Obj()
			sj.Spec.Parameters = []v1alpha1.Parameter{{Name: "DATE"}}
			if test.field == ofStep {
				sj.Spec.Containers[1].Step.When = test.expression
			} else {
				sj.Spec.Results = []v1alpha1.Parameter{{Name: "R", Value: test.expression}}
			}
			errs := Validate(sj)
			isRefused := len(errs) == 1 && errs[0].Field == test.field && strings.Contains(errs[0].Detail, test.want)
			require.True(t, isRefused == (test.want != "") && len(errs) <= 1, "errors %v, want one of %s with %q", errs, test.field, test.want)
		})
	}
}

func TestPolicyOfJobsIgnoresDisruptions(t *testing.T) {
	own := &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{Action: batchv1.PodFailurePolicyActionFailJob}}}
	for name, test := range map[string]struct {
		options *v1alpha1.StepOptions
		restart corev1.RestartPolicy
		want    *batchv1.PodFailurePolicy
	}{
		"by default": {restart: corev1.RestartPolicyNever, want: &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
			Action:          batchv1.PodFailurePolicyActionIgnore,
			OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}},
		}}}},
		"a policy of the step":     {options: &v1alpha1.StepOptions{PodFailurePolicy: own}, restart: corev1.RestartPolicyNever, want: own},
		"with restarts in the Pod": {restart: corev1.RestartPolicyOnFailure},
	} {
		t.Run(name, func(t *testing.T) {
			sj := sequence("build").Template(corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: test.restart}}).Obj()
			sj.Spec.Containers[0].Step = test.options
			assert.Equal(t, "policy", test.want, stepJob(sj, &sj.Spec.Containers[0], 1, 1).Spec.PodFailurePolicy)
		})
	}
}

func TestRetryFieldsOfAJobArePassedThrough(t *testing.T) {
	policy := &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{{SucceededIndexes: new("0")}}}
	sj := sequence("build").Obj()
	sj.Spec.Containers[0].Step = &v1alpha1.StepOptions{BackoffLimitPerIndex: new(int32(2)), MaxFailedIndexes: new(int32(1)), SuccessPolicy: policy}
	spec := stepJob(sj, &sj.Spec.Containers[0], 1, 1).Spec
	require.True(t, spec.BackoffLimit == nil && *spec.BackoffLimitPerIndex == 2 && *spec.MaxFailedIndexes == 1, "spec of the Job: %+v", spec)
	assert.Equal(t, "policy", policy, spec.SuccessPolicy)
}

// Pods cannot be created for names that are too long.
func TestLongNamesAreTruncatedToValidNamesAndLabels(t *testing.T) {
	for title, owner := range map[string]string{
		"short":                             "a",
		"maximum length":                    strings.Repeat("a", 253),
		"with dots":                         "my.app.example",
		"a dash at the truncation":          "abcdefghi-klm",
		"only dashes before the truncation": "a---------------------------------------------------b",
		"a dot at the end of the label":     strings.Repeat("a", 62) + ".b",
		"several at the end of the label":   strings.Repeat("a", 60) + "-.-b",
	} {
		sj := testbuilder.SequentialJob(owner, "ns").Obj()
		names := map[string]string{"archive": archiveJobName(sj, 1<<30)}
		for _, step := range []string{"a", strings.Repeat("s", 30), "a-b"} {
			names[step] = jobName(sj, 1, step, 1)
		}
		errs := validation.IsValidLabelValue(childLabels(sj)[v1alpha1.LabelSequentialJob])
		for part, name := range names {
			errs = append(errs, validation.IsDNS1123Label(name+"-99999")...) // of an Indexed Job's Pod
			require.True(t, len(errs) == 0 && strings.Contains(name, "-"+part+"-"), "%s: %q is no host name, or does not name %q: %v", title, name, part, errs)
		}
	}
}

func TestJobNamesDependOnRunStepAndAttempt(t *testing.T) {
	sj, recreated := sequence().Obj(), sequence().Obj()
	recreated.UID = types.UID("another")
	names := map[string]string{
		"the first attempt":                        jobName(sj, 1, "build", 1),
		"another run":                              jobName(sj, 2, "build", 1),
		"another attempt":                          jobName(sj, 1, "build", 2),
		"another step":                             jobName(sj, 1, "test", 1),
		"a recreated SequentialJob":                jobName(recreated, 1, "build", 1),
		"a step name that looks like a run number": jobName(sj, 1, "1-build", 1),
		"a long name":                              jobName(testbuilder.SequentialJob(strings.Repeat("a", 100)+"1", "ns").Obj(), 1, "build", 1),
		"another long name":                        jobName(testbuilder.SequentialJob(strings.Repeat("a", 100)+"2", "ns").Obj(), 1, "build", 1),
		"the workspace":                            WorkspaceName(sj),
		"the outputs":                              OutputsName(sj),
		"a step with the name of the workspace":    jobName(sj, 1, "workspace", 1),
		"a step with the name of the outputs":      jobName(sj, 1, "outputs", 1),
		"an archive":                               archiveJobName(sj, 1),
		"the archive of another run":               archiveJobName(sj, 1<<30),
	}
	seen := map[string]string{}
	for title, name := range names {
		other, found := seen[name]
		require.True(t, !found, "%s and %s have the name %s", title, other, name)
		seen[name] = title
	}
	again := jobName(sj, 1, "build", 1)
	require.True(t, again == names["the first attempt"], "the same attempt is named %s, then %s", names["the first attempt"], again)
}

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
