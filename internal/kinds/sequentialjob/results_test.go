package sequentialjob

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

var jsonOutput = testbuilder.WithStepOptions(func(o *v1alpha1.StepOptions) { o.Outputs, o.OutputFormat = true, v1alpha1.OutputJSON })

// runWithOutput returns a run whose first step, build, ended with an output in JSON. The second step has an expression.
func runWithOutput(t *testing.T, output, expression string, results ...v1alpha1.Parameter) (*testEnv, Decision) {
	sj := sequence().Step("build", jsonOutput).Step("ship", when(expression)).Obj()
	sj.Spec.Results, sj.Spec.Parameters = results, []v1alpha1.Parameter{{Name: "ENV", Value: "test"}}
	s := newTestEnv(t, sj).pass(wait(0))
	s.pods[s.newestJob("build").UID] = []corev1.Pod{testbuilder.Pod("build").Exited(0, output).Obj()}
	return s, s.succeedStep("build")
}

func TestFieldsOfAnOutputInJSON(t *testing.T) {
	for name, test := range map[string]struct {
		output, expression, want string
		// wantEnv are variables of the next step, wantMessage is a part of the message of the failed step.
		wantEnv     map[string]string
		wantMessage string
	}{
		"text":               {output: `{"tag": "v1$(X)"}` + "\n", expression: `outputs.build.tag == "v1$(X)"`, want: "ship: Starting", wantEnv: map[string]string{"TAG": "v1$$(X)"}},
		"a whole number":     {output: `{"count": 9007199254740993}`, expression: `outputs.build.count == 9007199254740993`, want: "ship: Starting", wantEnv: map[string]string{"COUNT": "9007199254740993"}},
		"another number":     {output: `{"ratio": 0.5}`, expression: `outputs.build.ratio < 1.0`, want: "ship: Starting", wantEnv: map[string]string{"RATIO": "0.5"}},
		"true":               {output: `{"is-new": true}`, expression: `outputs.build["is-new"] == true`, want: "ship: Starting", wantEnv: map[string]string{"IS_NEW": "true"}},
		"null":               {output: `{"a": null}`, expression: `outputs.build.a == null`, want: "ship: Starting", wantEnv: map[string]string{"A": ""}},
		"a list":             {output: `{"hosts": ["a", "<b>"]}`, expression: `"a" in outputs.build.hosts`, want: "ship: Starting", wantEnv: map[string]string{"HOSTS": `["a", "<b>"]`}},
		"a field in a field": {output: `{"image": {"digest": "d"}}`, expression: `outputs.build.image.digest == "d"`, want: "ship: Starting", wantEnv: map[string]string{"IMAGE": `{"digest": "d"}`}},
		"no object":          {output: `[1, 2]`, expression: `size(outputs.build) == 2`, want: "ship: Starting", wantEnv: map[string]string{}},
		"false":              {output: `{"deploy": false}`, expression: `outputs.build.deploy == true`, want: "ship: Skipped, WhenFalse"},
		"a missing field":    {output: `{}`, expression: `outputs.build.tag == ""`, want: "ship: Failed, WhenInvalid"},
		"presence":           {output: `{}`, expression: `!has(outputs.build.tag)`, want: "ship: Starting", wantEnv: map[string]string{}},
		"nothing":            {want: "build: Failed, OutputInvalid", wantMessage: "unexpected end of JSON input"},
		"no JSON":            {output: `tag=v1`, want: "build: Failed, OutputInvalid", wantMessage: "invalid character"},
		"two values":         {output: `{} {}`, want: "build: Failed, OutputInvalid", wantMessage: "after top-level value"},
		"a huge number":      {output: `{"n": 1e999}`, want: "build: Failed, OutputInvalid", wantMessage: "1e999"},
		"equal variables":    {output: `{"a-b": 1, "a_b": 2}`, want: "build: Failed, OutputInvalid", wantMessage: "STEP_BUILD_OUTPUT_A_B"},
		"a NUL":              {output: `{"a": "\u0000"}`, want: "build: Failed, OutputInvalid", wantMessage: "NUL"},
		"deep":               {output: strings.Repeat("[", 2000), want: "build: Failed, OutputInvalid", wantMessage: "unexpected end"},
	} {
		t.Run(name, func(t *testing.T) {
			s, d := runWithOutput(t, test.output, test.expression)
			if test.wantMessage != "" {
				s.pass(steps(test.want, "ship: Skipped, PreviousStepFailed"))
				require.Contains(t, s.stepStatus("build").Message, test.wantMessage)
				return
			}
			s.pass(steps("build: Succeeded", test.want))
			if d.CreateJob == nil {
				return
			}
			got := map[string]string{}
			for _, variable := range d.CreateJob.Spec.Template.Spec.Containers[0].Env {
				if field, found := strings.CutPrefix(variable.Name, "STEP_BUILD_OUTPUT_"); found {
					got[field] = variable.Value
				}
			}
			assert.Equal(t, "variables", test.wantEnv, got)
		})
	}
}

func TestResultsOfARun(t *testing.T) {
	for expression, want := range map[string]string{
		`outputs.build.tag`:                                "v1",
		`outputs.build.count + 1`:                          "3",
		`outputs.build.ratio`:                              "0.5",
		`outputs.build.isNew`:                              "true",
		`"in " + parameters.ENV + ": " + steps.ship.phase`: "in test: Succeeded",
		`sequence.status`:                                  "Completed",
		`outputs.build.missing`:                            "none: no such key",
		`outputs.build.hosts`:                              "none: not a text",
		`outputs.build.nothing`:                            "none: not a text",
		`outputs.ship`:                                     "none: no such key",
		`outputs.build.long`:                               "none: 1025 characters",
	} {
		t.Run(expression, func(t *testing.T) {
			output := fmt.Sprintf(`{"tag": "v1", "count": 2, "ratio": 0.5, "isNew": true, "hosts": ["a"], "nothing": null, "long": %q}`, strings.Repeat("x", maxParameterLength+1))
			s, _ := runWithOutput(t, output, "", v1alpha1.Parameter{Name: "RESULT", Value: expression})
			require.True(t, len(s.sj.Status.Results) == 0, "a run has results before it is completed")
			s.events = nil
			s.pass(succeed("ship"), phase(v1alpha1.PhaseCompleted, v1alpha1.ReasonCompleted))
			problem, isMissing := strings.CutPrefix(want, "none: ")
			if isMissing {
				if text := fmt.Sprint(s.events); len(s.sj.Status.Results) > 0 || !strings.Contains(text, v1alpha1.EventResultInvalid) || !strings.Contains(text, problem) {
					t.Errorf("results %v, events %s", s.sj.Status.Results, text)
				}
				return
			}
			assert.Equal(t, "results", []v1alpha1.Parameter{{Name: "RESULT", Value: want}}, s.sj.Status.Results)
		})
	}
}

func TestResultsAreThoseOfTheRun(t *testing.T) {
	results := func(want ...v1alpha1.Parameter) func(*testEnv) {
		return func(s *testEnv) { assert.Equal(s.t, "results", want, s.sj.Status.Results) }
	}
	tag := v1alpha1.Parameter{Name: "TAG", Value: "v1"}
	s, _ := runWithOutput(t, `{"tag": "v1"}`, "", v1alpha1.Parameter{Name: "TAG", Value: "outputs.build.tag"})
	s.pass(story{
		succeed("ship"), edit(func(spec *v1alpha1.SequentialJobSpec) { spec.Results[0].Value = `"other"` }), results(tag),
		rerun("ship"), results(), fail("ship"), results(),
	}...)
}
