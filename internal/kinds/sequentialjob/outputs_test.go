package sequentialjob

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func TestOutputIsRecordedAndPassedToLaterSteps(t *testing.T) {
	s := startRun(t, sequence().Step("get-version", testbuilder.RecordOutput()).Step("ship").Finally("notify"))
	s.pods[s.newestJob("get-version").UID] = []corev1.Pod{testbuilder.Pod("get-version").Exited(0, "1.2.3").Obj()}
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
		pods       []corev1.Pod
		wantReason string
		wantText   string
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
			if step := s.stepStatus("build"); step.Output != "" || !strings.Contains(step.Message, test.wantText) {
				t.Errorf("output %q and message %q, want none, and a message with %q", step.Output, step.Message, test.wantText)
			}
			require.True(t, decision.Outputs == nil, "finally gets the outputs %+v, want none", decision.Outputs)
		})
	}
}

// Without this, a finally step reads the output of the run before.
func TestRerunRemovesEarlierOutputs(t *testing.T) {
	sj := sequence().Step("build", testbuilder.RecordOutput()).Step("test").Obj()
	status := &v1alpha1.SequentialJobStatus{Steps: []v1alpha1.StepStatus{{Name: "build", Phase: v1alpha1.StepStarting}}}
	status.Run, status.Steps[0].Run = 2, 2
	if outputs := outputsConfigMap(sj, status); outputs == nil || len(outputs.Data) != 0 {
		t.Errorf("outputs %+v, want an empty ConfigMap", outputs)
	}
	status.Run = 1
	require.True(t, outputsConfigMap(sj, status) == nil, "there are outputs before any was recorded")
}
