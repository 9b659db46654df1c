package sequentialjob

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func TestOutputIsRecordedAndPassedToLaterSteps(t *testing.T) {
	s := startRun(t, sequence().Step("get-version", testbuilder.RecordOutput()).Step("ship").Finally("notify")).pass(exits("get-version", 0, "1.2.3"))
	decision := s.succeedStep("get-version")
	assert.Equal(t, "outputs before the step that reads them", map[string]string{"get-version": "1.2.3"}, decision.Outputs.Data)
	require.True(t, metav1.IsControlledBy(decision.Outputs, s.sj), "the ConfigMap has no controller")
	want := []corev1.EnvVar{{Name: "STEP_GET_VERSION_OUTPUT", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: decision.Outputs.Name}, Key: "get-version", Optional: new(true),
	}}}}
	assert.Equal(t, "environment of ship", want, decision.CreateJob.Spec.Template.Spec.Containers[0].Env[:len(want)])
}

func TestOutputsOfEarlierStepsComeFirstInTheEnvironment(t *testing.T) {
	own := testbuilder.ChangeContainer(func(c *corev1.Container) { c.Env = []corev1.EnvVar{{Name: "TAG", Value: "v$(STEP_ONE_OUTPUT)"}} })
	records := testbuilder.RecordOutput()
	sj := sequence().Step("one", records).Step("two", records, own).Finally("three", records).Obj()
	want := map[string][]string{
		"one":   nil,
		"two":   {"STEP_ONE_OUTPUT", "TAG"},
		"three": {envStatus, envFailedStep, envFailedReason, envFailedMessage, "STEP_ONE_OUTPUT", "STEP_TWO_OUTPUT"},
	}
	for i := range sj.Spec.Containers {
		step := &sj.Spec.Containers[i]
		var got []string
		for _, variable := range podTemplate(sj, step).Spec.Containers[0].Env {
			got = append(got, variable.Name)
		}
		assert.Equal(t, "environment of "+step.Name, want[step.Name], got)
	}
}

func TestRecordedOutput(t *testing.T) {
	exited := func(code int32, message string) corev1.Pod {
		return testbuilder.Pod("build").Exited(code, message).Obj()
	}
	recorded := []testbuilder.StepOption{testbuilder.RecordOutput()}
	long := "x" + strings.Repeat("ä", 2047) // as long as it is certain to be complete
	for title, test := range map[string]struct {
		options []testbuilder.StepOption
		pods    []corev1.Pod
		end     func(*testEnv)
		want    string
	}{
		"an empty termination message":          {recorded, []corev1.Pod{exited(0, "")}, succeed("build"), ""},
		"only the output of the successful Pod": {recorded, []corev1.Pod{exited(1, "bad"), exited(0, "good")}, succeed("build"), "good"},
		"without trailing newlines":             {recorded, []corev1.Pod{exited(0, "a\nb\n\n")}, succeed("build"), "a\nb"},
		"a long one":                            {recorded, []corev1.Pod{exited(0, long)}, succeed("build"), long},
		"none of a step without outputs":        {nil, []corev1.Pod{exited(0, "text")}, succeed("build"), ""},
		"none of a failed step":                 {append(recorded, testbuilder.ContinueOnFailure()), []corev1.Pod{exited(1, "secret")}, fail("build"), ""},
	} {
		t.Run(title, func(t *testing.T) {
			s := startRun(t, sequence().Step("build", test.options...).Step("test"))
			s.pods[s.newestJob("build").UID] = test.pods
			test.end(s)
			assert.Equal(t, "output", test.want, s.stepStatus("build").Output)
		})
	}
}

func TestOutputThatCannotBePassedOnFailsItsStep(t *testing.T) {
	const replaced = "\uFFFD" // how the API server returns a byte that is not UTF-8
	withContainers := func(init, regular, ephemeral int, message string) []corev1.Pod {
		pod := testbuilder.Pod("build").Exited(0, message).Obj()
		pod.Spec.InitContainers = make([]corev1.Container, init)
		pod.Spec.Containers = make([]corev1.Container, regular)
		pod.Spec.EphemeralContainers = make([]corev1.EphemeralContainer, ephemeral)
		return []corev1.Pod{pod}
	}
	text := func(bytes int) string { return strings.Repeat("x", bytes) }
	for name, test := range map[string]struct {
		pods                 []corev1.Pod
		wantReason, wantText string
	}{
		"a NUL byte":                     {withContainers(0, 1, 0, "a\x00b"), v1alpha1.ReasonOutputInvalid, "NUL"},
		"a byte that is not UTF-8":       {withContainers(0, 1, 0, "a\xffb"), v1alpha1.ReasonOutputInvalid, "UTF-8"},
		"a byte that was replaced":       {withContainers(0, 1, 0, "a"+replaced+"b"), v1alpha1.ReasonOutputInvalid, "UTF-8"},
		"a long binary":                  {withContainers(0, 1, 0, strings.Repeat("a"+replaced, 4096)+"b"), v1alpha1.ReasonOutputInvalid, "UTF-8"},
		"4096 bytes or more":             {withContainers(0, 1, 0, text(4096)), v1alpha1.ReasonOutputTooLong, "at most 4095,"},
		"cut within characters":          {withContainers(0, 1, 0, replaced+text(4091)+replaced), v1alpha1.ReasonOutputTooLong, "at most 4095,"},
		"three containers":               {withContainers(1, 1, 1, text(4096)), v1alpha1.ReasonOutputTooLong, "at most 4095,"},
		"four containers":                {withContainers(2, 1, 1, text(3072)), v1alpha1.ReasonOutputTooLong, "at most 3071,"},
		"only newlines beyond the limit": {withContainers(3, 2, 0, "x"+strings.Repeat("\n", 2456)), v1alpha1.ReasonOutputTooLong, "at most 2456,"},
		"a Pod without a status of the container": {
			[]corev1.Pod{{ObjectMeta: metav1.ObjectMeta{UID: "pod"}, Status: corev1.PodStatus{Phase: corev1.PodSucceeded}}},
			v1alpha1.ReasonOutputLost,
			"does not report",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := startRun(t, sequence().Step("build", testbuilder.RecordOutput()).Step("ship").Finally("cleanup"))
			s.pods[s.newestJob("build").UID] = test.pods
			decision := s.succeedStep("build")
			s.pass(steps("build: Failed, "+test.wantReason, "ship: Skipped, PreviousStepFailed", "cleanup: Starting"))
			step := s.stepStatus("build")
			require.True(t, step.Output == "" && strings.Contains(step.Message, test.wantText), "step %+v, want a message with %q", step, test.wantText)
			require.True(t, decision.Outputs == nil, "finally gets the outputs %+v, want none", decision.Outputs)
		})
	}
}

// Without this, a finally step reads the output of the run before.
func TestRerunRemovesEarlierOutputs(t *testing.T) {
	sj := sequence().Step("build", testbuilder.RecordOutput()).Step("test").Obj()
	status := &v1alpha1.SequentialJobStatus{Steps: []v1alpha1.StepStatus{{Name: "build", Phase: v1alpha1.StepStarting}}}
	status.Run, status.Steps[0].Run = 2, 2
	outputs := outputsConfigMap(sj, status)
	require.True(t, outputs != nil && len(outputs.Data) == 0, "outputs %+v, want an empty ConfigMap", outputs)
	status.Run = 1
	require.True(t, outputsConfigMap(sj, status) == nil, "there are outputs before any was recorded")
}

var jsonOutput = testbuilder.WithStepOptions(func(o *v1alpha1.StepOptions) { o.Outputs, o.OutputFormat = true, v1alpha1.OutputJSON })

// runWithOutput returns a run whose first step, build, ended with an output in JSON. The second step has an expression.
func runWithOutput(t *testing.T, output, expression string, results ...v1alpha1.Parameter) (*testEnv, Decision) {
	sj := sequence().Step("build", jsonOutput).Step("ship", when(expression)).Obj()
	sj.Spec.Results, sj.Spec.Parameters = results, []v1alpha1.Parameter{{Name: "ENV", Value: "test"}}
	s := newTestEnv(t, sj).pass(wait(0), exits("build", 0, output))
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

// envOf returns the environment of a step's newest Job, without the attempt and variables that refer to other objects.
func (s *testEnv) envOf(step string) map[string]string {
	env := map[string]string{}
	for _, variable := range s.newestJob(step).Spec.Template.Spec.Containers[0].Env {
		if variable.ValueFrom == nil && variable.Name != envRun && variable.Name != envAttempt {
			env[variable.Name] = variable.Value
		}
	}
	return env
}

func TestTheAttemptIsInTheEnvironmentOfEveryStep(t *testing.T) {
	s := startRun(t, sequence().RerunLostJobs().Step("build").Step("test"))
	want := func(step, run, attempt string) {
		t.Helper()
		env := map[string]string{}
		pod := s.newestJob(step).Spec.Template
		for _, variable := range pod.Spec.Containers[0].Env {
			env[variable.Name] = variable.Value
			if variable.Name == envUID && variable.ValueFrom.FieldRef.FieldPath == "metadata.labels['yardmaster.dev/sequentialjob-uid']" {
				env[envUID] = pod.Labels["yardmaster.dev/sequentialjob-uid"]
			}
		}
		assert.Equal(t, "environment of step "+step, map[string]string{envUID: string(s.sj.UID), envRun: run, envAttempt: attempt}, env)
	}
	want("build", "1", "1")
	s.pass(lose("build"))
	want("build", "1", "2")
	s.succeedStep("build")
	want("test", "1", "1")
	s.pass(fail("test"), rerun("Start"))
	want("build", "2", "1")
}

func TestFinallyStepsGetTheOutcomeOfTheRun(t *testing.T) {
	completed := map[string]string{envStatus: "Completed", envFailedStep: "", envFailedReason: "", envFailedMessage: ""}
	failedFor := func(step, reason, message string) map[string]string {
		return map[string]string{envStatus: "Failed", envFailedStep: step, envFailedReason: reason, envFailedMessage: message}
	}
	for name, test := range map[string]struct {
		scenario
		want map[string]string
	}{
		"completed": {scenario{sequence("build"), story{succeed("build")}}, completed},
		"failed": {
			scenario{sequence("build", "test"), story{fail("build")}},
			failedFor("build", "BackoffLimitExceeded", "Job has reached the specified backoff limit"),
		},
		"failed with a message that Kubernetes would expand": {
			scenario{sequence("build"), story{exits("build", 3, "$(HOME)"), fail("build")}},
			failedFor("build", "BackoffLimitExceeded", "container build exited with code 3: $$(HOME)"),
		},
		"a tolerated failure": {scenario{sequence().Step("lint", testbuilder.ContinueOnFailure()), story{fail("lint")}}, completed},
		"the deadline, between two steps": {
			scenario{sequence("build", "test").ActiveDeadline(10), story{
				func(s *testEnv) { testbuilder.Job(s.newestJob("build")).Complete(s.now) }, wait(time.Minute),
			}},
			failedFor("", "DeadlineExceeded", deadlineMessage),
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := startRun(t, test.sj.Finally("notify").Finally("cleanup"))
			env := s.envOf(s.createdSteps[0])
			require.True(t, len(env) == 0, "environment %v of a step that does not run finally", env)
			s.pass(test.story...)
			assert.Equal(t, "environment", test.want, s.envOf("notify"))
			s.failStep("notify")
			assert.Equal(t, "environment after another finally step failed", test.want, s.envOf("cleanup"))
		})
	}
}

func TestParametersAreLiteralVariablesOfEveryStep(t *testing.T) {
	sj := sequence().Step("build", testbuilder.ChangeContainer(func(c *corev1.Container) {
		c.Env = []corev1.EnvVar{{Name: "TARGET", Value: "$(DATE)"}, {Name: envRun, Value: "nightly"}} // which replaces the number of the run
	})).Finally("notify").Obj()
	sj.Spec.Parameters = []v1alpha1.Parameter{{Name: "DATE", Value: "2026-01-01"}, {Name: "PRICE", Value: "$(DATE) $5"}}
	s := newTestEnv(t, sj).pass(wait(0))
	assert.Equal(t, "environment", map[string]string{"DATE": "2026-01-01", "PRICE": "$$(DATE) $$5", "TARGET": "$(DATE)"}, s.envOf("build"))
	var runs []string
	for _, variable := range s.newestJob("build").Spec.Template.Spec.Containers[0].Env {
		if variable.Name == envRun {
			runs = append(runs, variable.Value)
		}
	}
	assert.Equal(t, "values of SEQUENCE_RUN", []string{"nightly"}, runs)
	s.succeedStep("build")
	assert.Equal(t, "DATE of a finally step", "2026-01-01", s.envOf("notify")["DATE"])
}

func TestParametersAreFixedWhenARunStarts(t *testing.T) {
	sj := sequence("build", "test").Suspend().Obj()
	sj.Spec.Parameters = []v1alpha1.Parameter{{Name: "DATE", Value: "1"}, {Name: "MODE", Value: "full"}}
	parameters := func(step, date string) func(*testEnv) {
		return func(s *testEnv) {
			assert.Equal(s.t, "parameters of "+step, map[string]string{"DATE": date, "MODE": "full"}, s.envOf(step))
		}
	}
	newTestEnv(t, sj).pass(
		wait(0), edit(func(spec *v1alpha1.SequentialJobSpec) { spec.Parameters[0].Value, spec.Suspend = "2", false }), parameters("build", "2"),
		edit(func(spec *v1alpha1.SequentialJobSpec) { spec.Parameters[0].Value = "3" }), succeed("build"), parameters("test", "2"), fail("test"),
		edit(func(spec *v1alpha1.SequentialJobSpec) {
			spec.Rerun = &v1alpha1.SequenceRerun{Rerun: v1alpha1.Rerun{ID: "again"}, Parameters: []v1alpha1.Parameter{{Name: "DATE", Value: "4"}}}
		}), parameters("test", "4"),
	)
}
