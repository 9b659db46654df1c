package sequentialjob

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func when(expression string) testbuilder.StepOption {
	return testbuilder.WithStepOptions(func(o *v1alpha1.StepOptions) { o.When = expression })
}

func TestStepRunsOnlyIfItsExpressionIsTrue(t *testing.T) {
	tests := map[string]struct {
		expression string
		output     string
		want       string
	}{
		"an output that matches":     {expression: `steps.build.output == "changed"`, output: "changed", want: "deploy: Starting"},
		"an output that does not":    {expression: `steps.build.output == "changed"`, output: "same", want: "deploy: Skipped, WhenFalse"},
		"a phase":                    {expression: `steps.build.phase == "Succeeded"`, want: "deploy: Starting"},
		"a parameter":                {expression: `parameters.ENV == "prod"`, want: "deploy: Skipped, WhenFalse"},
		"an output as a number":      {expression: `int(steps.build.output) > 3`, output: "5", want: "deploy: Starting"},
		"the outcome of the run":     {expression: `sequence.status == "Running"`, want: "deploy: Starting"},
		"a name in brackets":         {expression: `steps["build"].reason == ""`, want: "deploy: Starting"},
		"any step":                   {expression: `steps.exists(s, steps[s].phase == "Failed")`, want: "deploy: Skipped, WhenFalse"},
		"an error in the evaluation": {expression: `int(steps.build.output) > 3`, output: "many", want: "deploy: Failed, WhenInvalid"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			sj := testbuilder.SequentialJob("a", "ns").Step("build", testbuilder.RecordOutput()).Step("deploy", when(test.expression)).Obj()
			sj.Spec.Parameters = []v1alpha1.Parameter{{Name: "ENV", Value: "test"}}
			s := newTestEnv(t, sj)
			s.reconcile()
			s.pods[s.newestJob("build").UID] = []corev1.Pod{testbuilder.Pod("build").Exited(0, test.output).Obj()}
			s.succeedStep("build")
			s.wantSteps("build: Succeeded", test.want)
		})
	}
}

func TestRunCompletesWithoutStepsThatAreNotWanted(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("first", when("false")).Step("build").
		Step("rollback", when(`steps.build.phase == "Failed"`)).Finally("notify", when(`sequence.status == "Failed"`)))
	s.succeedStep("build")
	s.wantSteps("first: Skipped, WhenFalse", "build: Succeeded", "rollback: Skipped, WhenFalse", "notify: Skipped, WhenFalse")
	s.wantPhase(v1alpha1.PhaseCompleted, v1alpha1.ReasonCompleted)
	if got := FormatProgress(s.sj, false); got != "1/1" {
		t.Errorf("progress %s, want 1/1", got)
	}
}

func TestExpressionAfterAToleratedFailure(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build", testbuilder.ContinueOnFailure()).
		Step("rollback", when(`steps.build.phase == "Failed"`)))
	s.failStep("build")
	s.wantCreated("build", "rollback")
}

func TestRerunKeepsSkippedSteps(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("first", when("false")).Step("build"))
	s.failStep("build")
	s.changeSpec(func(spec *v1alpha1.SequentialJobSpec) {
		spec.Rerun = &v1alpha1.SequenceRerun{Rerun: v1alpha1.Rerun{ID: "again"}}
	})
	s.reconcile()
	s.wantSteps("first: Skipped, WhenFalse", "build: Starting")
	if got := s.stepStatus("first").Run; got != 1 {
		t.Errorf("the skipped step belongs to run %d", got)
	}
}

func TestSkippedStepsAreImmutable(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("first", when("false")).Step("build").Step("test"))
	s.changeSpec(func(spec *v1alpha1.SequentialJobSpec) { spec.Containers[2].Image = "other" })
	s.reconcile()
	if errs := ImmutabilityViolations(nil, &s.sj.Spec, &s.sj.Status); len(errs) != 0 {
		t.Errorf("a change of a later step is refused: %v", errs)
	}
	changed := s.sj.Spec.DeepCopy()
	changed.Containers[0].Step.When = "true"
	want := []string{"spec.containers[0]: Forbidden"}
	if diff := cmp.Diff(want, errorFields(ImmutabilityViolations(nil, changed, &s.sj.Status))); diff != "" {
		t.Errorf("violations (-want, +got):\n%s", diff)
	}
}

func TestExpressionsAreTypeChecked(t *testing.T) {
	tests := map[string]struct{ expression, want string }{
		"syntax":              {"steps.build.output ==", "Syntax error"},
		"an unknown field":    {`steps.build.outputs == ""`, "undefined field 'outputs'"},
		"an unknown variable": {`step.build.output == ""`, "undeclared reference to 'step'"},
		"types":               {`steps.build.output == 1`, "no matching overload"},
		"no bool":             {`steps.build.output`, "has the type string"},
		"an unknown step":     {`steps.biuld.output == ""`, `steps has no "biuld"`},
		"a later step":        {`steps["ship"].output == ""`, `steps has no "ship"`},
		"the step itself":     {`steps.deploy.output == ""`, `steps has no "deploy"`},
		"a parameter":         {`parameters.DAY == ""`, `parameters has no "DAY"`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			sj := testbuilder.SequentialJob("a", "ns").Step("build").Step("deploy", when(test.expression)).Step("ship").Obj()
			sj.Spec.Parameters = []v1alpha1.Parameter{{Name: "DATE"}}
			errs := Validate(sj)
			if len(errs) != 1 || errs[0].Field != "spec.containers[1].step.when" || !strings.Contains(errs[0].Detail, test.want) {
				t.Errorf("errors %v, want one with %q", errs, test.want)
			}
		})
	}
}

func TestExpensiveExpressionFailsItsStep(t *testing.T) {
	long := strings.Repeat("x", 1000)
	expression := `[1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b, [1,2,3,4,5,6,7,8,9].all(c, [1,2,3,4,5,6,7,8,9].all(d, ` +
		`[1,2,3,4,5,6,7,8,9].all(e, parameters.A.contains("y") == false)))))`
	sj := testbuilder.SequentialJob("a", "ns").Step("build", when(expression)).Obj()
	sj.Spec.Parameters = []v1alpha1.Parameter{{Name: "A", Value: long}}
	s := newTestEnv(t, sj)
	s.reconcile()
	s.wantSteps("build: Failed, WhenInvalid")
}

func TestPolicyOfJobsIgnoresDisruptions(t *testing.T) {
	own := &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{Action: batchv1.PodFailurePolicyActionFailJob}}}
	tests := map[string]struct {
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
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			sj := testbuilder.SequentialJob("a", "ns").Step("build").Template(corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: test.restart}}).Obj()
			sj.Spec.Containers[0].Step = test.options
			if diff := cmp.Diff(test.want, stepJob(sj, &sj.Spec.Containers[0], 1, 1).Spec.PodFailurePolicy); diff != "" {
				t.Errorf("policy (-want, +got):\n%s", diff)
			}
		})
	}
}

func TestRetryFieldsOfAJobArePassedThrough(t *testing.T) {
	policy := &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{{SucceededIndexes: new("0")}}}
	sj := testbuilder.SequentialJob("a", "ns").Step("build").Obj()
	sj.Spec.Containers[0].Step = &v1alpha1.StepOptions{BackoffLimitPerIndex: new(int32(2)), MaxFailedIndexes: new(int32(1)), SuccessPolicy: policy}
	spec := stepJob(sj, &sj.Spec.Containers[0], 1, 1).Spec
	if spec.BackoffLimit != nil || *spec.BackoffLimitPerIndex != 2 || *spec.MaxFailedIndexes != 1 || spec.SuccessPolicy.Rules[0].SucceededIndexes == nil {
		t.Errorf("spec of the Job: %+v", spec)
	}
}
