package sequentialjob

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// startAtSecondStep returns a run whose first step succeeded, whose second is running and whose third is pending.
func startAtSecondStep(t *testing.T) *testEnv {
	s := startRun(t, sequence("build", "test", "ship").Finally("cleanup"))
	s.pass(succeed("build"), wait(time.Minute))
	return s
}

func TestStartedStepsAreImmutable(t *testing.T) {
	type spec = v1alpha1.SequentialJobSpec
	insert := func(at int) func(*spec) {
		return func(s *spec) { s.Containers = slices.Insert(s.Containers, at, testbuilder.Step("more")) }
	}
	remove := func(from, to int) func(*spec) {
		return func(s *spec) { s.Containers = slices.Delete(s.Containers, from, to) }
	}
	image := func(at int) func(*spec) { return func(s *spec) { s.Containers[at].Image = "other" } }
	for title, test := range map[string]struct {
		edit     func(*spec)
		violates int // the index of the step, -1 for none
	}{
		"no change":                                {func(*spec) {}, -1},
		"a pending step is edited":                 {image(2), -1},
		"a pending step is removed":                {remove(2, 3), -1},
		"a step is appended":                       {insert(3), -1},
		"a step is inserted between pending steps": {insert(2), -1},
		"pending finally steps are edited":         {func(s *spec) { s.Containers = append(s.Containers, finallyStep("more")) }, -1},
		"the template changes":                     {func(s *spec) { s.Template = &v1alpha1.PodTemplate{} }, -1},
		"the running step is edited":               {image(1), 1},
		"the running step's options are edited": {
			func(s *spec) { s.Containers[1].Step = &v1alpha1.StepOptions{OnFailure: v1alpha1.OnFailureContinue} }, 1,
		},
		"a finished step is edited":                {func(s *spec) { s.Containers[0].Args = []string{"x"} }, 0},
		"a started step is renamed":                {func(s *spec) { s.Containers[0].Name = "other" }, 0},
		"a started step is removed":                {remove(0, 1), 0},
		"all but the first step are removed":       {remove(1, 3), 1},
		"started steps are reordered":              {func(s *spec) { slices.Reverse(s.Containers[:2]) }, 0},
		"a step is inserted before a started step": {insert(1), 1},
		"a started step gets the option finally": {
			func(s *spec) { s.Containers = append(slices.Delete(s.Containers, 1, 2), finallyStep("test")) }, 2,
		},
	} {
		t.Run(title, func(t *testing.T) {
			s := startAtSecondStep(t)
			changed := s.sj.Spec.DeepCopy()
			test.edit(changed)
			var want []string
			if test.violates >= 0 {
				want = []string{fmt.Sprintf("spec.containers[%d]: Forbidden", test.violates)}
			}
			assert.Equal(t, "violations", want, errorFields(ImmutabilityViolations(nil, changed, &s.sj.Status)))
		})
	}
	skipped := startRun(t, sequence().Step("first", when("false")).Step("build"))
	for expression, want := range map[string][]string{"false": nil, "true": {"spec.containers[0]: Forbidden"}} {
		skipped.sj.Spec.Containers[0].Step.When = expression
		assert.Equal(t, "violations by a skipped step", want, errorFields(ImmutabilityViolations(nil, &skipped.sj.Spec, &skipped.sj.Status)))
	}
	finished := startAtSecondStep(t).pass(fail("test"), succeed("cleanup"))
	shorter := sequence("other").Obj().Spec
	for when, status := range map[string]*v1alpha1.SequentialJobStatus{"before the run": {}, "after the run": &finished.sj.Status} {
		errs := ImmutabilityViolations(nil, &shorter, status)
		require.True(t, len(errs) == 0, "%s: %v", when, errs)
	}
}

func finallyStep(name string) v1alpha1.Step {
	return sequence().Finally(name).Obj().Spec.Containers[0]
}

// Without a webhook, also forbidden changes are stored.
func TestAChangeAppliesOnlyToStepsThatHaveNotStarted(t *testing.T) {
	secondStep := func(more ...func(*testEnv)) scenario {
		return scenario{sequence("build", "test", "ship").Finally("cleanup"), append(story{succeed("build"), wait(time.Minute)}, more...)}
	}
	image := func(at int) func(*testEnv) {
		return edit(func(spec *v1alpha1.SequentialJobSpec) { spec.Containers[at].Image = "new" })
	}
	continues := steps("build: Succeeded", "test: Starting", "ship: Pending", "cleanup: Pending")
	endsOnce := func(s *testEnv) {
		s.pass(succeed("test", "ship", "cleanup"), created("build", "test", "ship", "cleanup"), phase(v1alpha1.PhaseCompleted, v1alpha1.ReasonCompleted))
	}
	insert := func(spec *v1alpha1.SequentialJobSpec) {
		spec.Containers = slices.Insert(spec.Containers, 1, testbuilder.Step("more"))
	}
	runScenarios(t, map[string]scenario{
		"a change of a started step is reported": secondStep(
			forgetEvents, image(1), continues, events(v1alpha1.EventSpecChanged, v1alpha1.EventSpecRejected),
			func(s *testEnv) {
				c := meta.FindStatusCondition(s.sj.Status.Conditions, v1alpha1.ConditionSpecAccepted)
				assert.Equal(s.t, "SpecAccepted", "False, StartedStepChanged", string(c.Status)+", "+c.Reason)
			}, endsOnce,
		),
		"a later step has its new image": secondStep(image(2), continues, succeed("test"), wait(time.Minute), func(s *testEnv) {
			generation := func(step string) string { return s.newestJob(step).Annotations[v1alpha1.AnnotationGeneration] }
			got := []string{s.newestJob("ship").Spec.Template.Spec.Containers[0].Image, generation("build"), generation("ship")}
			assert.Equal(s.t, "image, and generations of the Jobs", []string{"new", "1", "2"}, got)
			assert.Equal(s.t, "observed generation", int64(2), s.sj.Status.ObservedGeneration)
		}),
		"a removed step that has started counts once": secondStep(edit(removeFirstStep), endsOnce, func(s *testEnv) {
			if got := s.sj.Status; got.State.Succeeded != 4 || FormatProgress(s.sj, false) != "3/3" {
				s.t.Errorf("want 4 of 4, got %+v, %s", got.State, FormatProgress(s.sj, false))
			}
		}),
		"a started step keeps its options": {sequence().Step("lint", testbuilder.ContinueOnFailure()).Step("build"), story{
			edit(func(spec *v1alpha1.SequentialJobSpec) { spec.Containers[0].Step = nil }), fail("lint"), created("lint", "build"),
		}},
		"no step is added before finally steps that have started": {sequence("build").Finally("cleanup"), story{
			succeed("build"),
			func(s *testEnv) {
				changed := s.sj.Spec.DeepCopy()
				insert(changed)
				assert.Equal(s.t, "violations", []string{"spec.containers[1]: Forbidden"}, errorFields(ImmutabilityViolations(nil, changed, &s.sj.Status)))
			},
			edit(insert), succeed("cleanup"), created("build", "cleanup"), phase(v1alpha1.PhaseCompleted, v1alpha1.ReasonCompleted),
		}},
	})
}

// A release of the operator that hashes steps in another way must not take started steps for changed ones.
func TestUpgradeOfTheOperatorDoesNotChangeStartedSteps(t *testing.T) {
	for name, hash := range map[string]string{"without a version": "0123456789abcdef", "of another version": "v1:0123456789abcdef", "none": ""} {
		t.Run(name, func(t *testing.T) {
			s := startAtSecondStep(t)
			for i := range s.sj.Status.Steps {
				s.sj.Status.Steps[i].SpecHash = hash
			}
			for _, job := range s.jobs {
				job.Annotations[v1alpha1.AnnotationSpecHash] = hash
			}
			before := s.sj.Spec.DeepCopy()
			s.pass(edit(func(spec *v1alpha1.SequentialJobSpec) { spec.Containers[2].Image = "other" }))
			require.True(t, meta.IsStatusConditionTrue(s.sj.Status.Conditions, v1alpha1.ConditionSpecAccepted),
				"the change of a later step is refused: %+v", s.sj.Status.Conditions)

			edited := before.DeepCopy()
			edited.Containers[1].Image = "other"
			want := []string{"spec.containers[1]: Forbidden"}
			assert.Equal(t, "violations that the webhook finds", want, errorFields(ImmutabilityViolations(before, edited, &s.sj.Status)))
		})
	}
}

func TestHashOfAStepIsStable(t *testing.T) {
	container := corev1.Container{
		Image: "tool:1", Command: []string{"run"}, Env: []corev1.EnvVar{{Name: "A"}, {Name: "B", Value: "b"}},
		Resources:       corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}},
		SecurityContext: &corev1.SecurityContext{RunAsNonRoot: new(false), Capabilities: &corev1.Capabilities{}},
	}
	step := v1alpha1.Step{Name: "build", Container: container, Step: &v1alpha1.StepOptions{BackoffLimit: new(int32(2)), Outputs: true}}
	const want = "v2:a8d9bf3bc344388f"
	assert.Equal(t, "hash; if the change is intended, also change specHashVersion", want, stepHash(&step))
}

func TestDefaultsOfAStepAreNotAChange(t *testing.T) {
	plain := testbuilder.Step("build")
	for title, test := range map[string]struct {
		options v1alpha1.StepOptions
		isSame  bool
	}{
		"defaults":            {v1alpha1.StepOptions{BackoffLimit: new(int32), OnFailure: v1alpha1.OnFailureStop}, true},
		"no options":          {v1alpha1.StepOptions{}, true},
		"onFailure: Continue": {v1alpha1.StepOptions{OnFailure: v1alpha1.OnFailureContinue}, false},
		"backoffLimit: 1":     {v1alpha1.StepOptions{BackoffLimit: new(int32(1))}, false},
	} {
		step := testbuilder.Step("build")
		step.Step = &test.options
		assert.Equal(t, "a step with "+title+" is the same", test.isSame, stepHash(&step) == stepHash(&plain))
	}
}
