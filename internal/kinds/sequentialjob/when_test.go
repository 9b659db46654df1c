package sequentialjob

import (
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

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
			s := newTestEnv(t, sj).pass(wait(0))
			s.pods[s.newestJob("build").UID] = []corev1.Pod{testbuilder.Pod("build").Exited(0, test.output).Obj()}
			s.pass(succeed("build"), steps("build: Succeeded", test.want))
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
	if spec.BackoffLimit != nil || *spec.BackoffLimitPerIndex != 2 || *spec.MaxFailedIndexes != 1 || spec.SuccessPolicy.Rules[0].SucceededIndexes == nil {
		t.Errorf("spec of the Job: %+v", spec)
	}
}
