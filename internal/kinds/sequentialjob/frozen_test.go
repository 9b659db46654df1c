package sequentialjob

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// startAtSecondStep returns a run whose first step succeeded, whose second is running and whose third is pending.
func startAtSecondStep(t *testing.T) *testEnv {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test").Step("ship").Finally("cleanup"))
	s.succeedStep("build")
	s.reconcileAfter(time.Minute)
	return s
}

func TestStartedStepsAreImmutable(t *testing.T) {
	tests := map[string]struct {
		edit func(*v1alpha1.SequentialJobSpec)
		want []string
	}{
		"no change": {edit: func(*v1alpha1.SequentialJobSpec) {}},
		"a pending step is edited": {
			edit: func(s *v1alpha1.SequentialJobSpec) { s.Containers[2].Image = "other" },
		},
		"a pending step is removed": {
			edit: func(s *v1alpha1.SequentialJobSpec) { s.Containers = slices.Delete(s.Containers, 2, 3) },
		},
		"a step is appended": {
			edit: func(s *v1alpha1.SequentialJobSpec) {
				s.Containers = slices.Insert(s.Containers, 3, testbuilder.Step("more"))
			},
		},
		"a step is inserted between pending steps": {
			edit: func(s *v1alpha1.SequentialJobSpec) {
				s.Containers = slices.Insert(s.Containers, 2, testbuilder.Step("more"))
			},
		},
		"pending finally steps are edited": {
			edit: func(s *v1alpha1.SequentialJobSpec) { s.Containers = append(s.Containers, finallyStep("more")) },
		},
		"the template changes": {
			edit: func(s *v1alpha1.SequentialJobSpec) { s.Template = &v1alpha1.PodTemplate{} },
		},
		"the running step is edited": {
			edit: func(s *v1alpha1.SequentialJobSpec) { s.Containers[1].Image = "other" },
			want: []string{"spec.containers[1]: Forbidden"},
		},
		"the running step's options are edited": {
			edit: func(s *v1alpha1.SequentialJobSpec) {
				s.Containers[1].Step = &v1alpha1.StepOptions{OnFailure: v1alpha1.OnFailureContinue}
			},
			want: []string{"spec.containers[1]: Forbidden"},
		},
		"a finished step is edited": {
			edit: func(s *v1alpha1.SequentialJobSpec) { s.Containers[0].Args = []string{"x"} },
			want: []string{"spec.containers[0]: Forbidden"},
		},
		"a started step is renamed": {
			edit: func(s *v1alpha1.SequentialJobSpec) { s.Containers[0].Name = "other" },
			want: []string{"spec.containers[0]: Forbidden"},
		},
		"a started step is removed": {
			edit: func(s *v1alpha1.SequentialJobSpec) { s.Containers = s.Containers[1:] },
			want: []string{"spec.containers[0]: Forbidden"},
		},
		"all but the first step are removed": {
			edit: func(s *v1alpha1.SequentialJobSpec) { s.Containers = slices.Delete(s.Containers, 1, 3) },
			want: []string{"spec.containers[1]: Forbidden"},
		},
		"started steps are reordered": {
			edit: func(s *v1alpha1.SequentialJobSpec) { slices.Reverse(s.Containers[:2]) },
			want: []string{"spec.containers[0]: Forbidden"},
		},
		"a step is inserted before a started step": {
			edit: func(s *v1alpha1.SequentialJobSpec) {
				s.Containers = slices.Insert(s.Containers, 1, testbuilder.Step("more"))
			},
			want: []string{"spec.containers[1]: Forbidden"},
		},
		"a started step gets the option finally": {
			edit: func(s *v1alpha1.SequentialJobSpec) {
				s.Containers = append(slices.Delete(s.Containers, 1, 2), finallyStep("test"))
			},
			want: []string{"spec.containers[2]: Forbidden"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := startAtSecondStep(t)
			changed := s.sj.Spec.DeepCopy()
			test.edit(changed)
			if diff := cmp.Diff(test.want, errorFields(ImmutabilityViolations(nil, changed, &s.sj.Status))); diff != "" {
				t.Errorf("violations (-want, +got):\n%s", diff)
			}
		})
	}
}

func finallyStep(name string) v1alpha1.Step {
	return testbuilder.SequentialJob("a", "ns").Finally(name).Obj().Spec.Containers[0]
}

func TestNoStepCanBeAddedBeforeStepsWithFinallyOnceTheyStarted(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Finally("cleanup"))
	s.succeedStep("build")
	more := func(spec *v1alpha1.SequentialJobSpec) {
		spec.Containers = slices.Insert(spec.Containers, 1, testbuilder.Step("more"))
	}
	changed := s.sj.Spec.DeepCopy()
	more(changed)
	if diff := cmp.Diff([]string{"spec.containers[1]: Forbidden"}, errorFields(ImmutabilityViolations(nil, changed, &s.sj.Status))); diff != "" {
		t.Errorf("violations (-want, +got):\n%s", diff)
	}

	s.changeSpec(more) // without a webhook
	s.succeedStep("cleanup")
	s.wantCreated("build", "cleanup")
	s.wantPhase(v1alpha1.PhaseCompleted, v1alpha1.ReasonCompleted)
}

func TestStepsAreMutableBeforeAndAfterARun(t *testing.T) {
	shorter := testbuilder.SequentialJob("a", "ns").Step("other").Obj().Spec
	finished := startAtSecondStep(t)
	finished.failStep("test")
	finished.succeedStep("cleanup")
	if errs := ImmutabilityViolations(nil, &shorter, &finished.sj.Status); len(errs) > 0 {
		t.Errorf("after the run: %v", errs)
	}
	if errs := ImmutabilityViolations(nil, &shorter, &v1alpha1.SequentialJobStatus{}); len(errs) > 0 {
		t.Errorf("before the run: %v", errs)
	}
}

func TestChangedStartedStepIsReportedAndTheRunContinues(t *testing.T) {
	s := startAtSecondStep(t)
	s.changeSpec(func(spec *v1alpha1.SequentialJobSpec) { spec.Containers[1].Image = "other" })
	decision := s.reconcile()
	if decision.HasActions() {
		t.Errorf("the running Job is interrupted: %+v", decision)
	}
	c := meta.FindStatusCondition(s.sj.Status.Conditions, v1alpha1.ConditionSpecAccepted)
	if c.Status != "False" || c.Reason != v1alpha1.ReasonStartedStepChanged {
		t.Errorf("want SpecAccepted False, StartedStepChanged, got %+v", c)
	}
	s.wantEvents(v1alpha1.EventJobStarted, v1alpha1.EventJobCompleted, v1alpha1.EventJobStarted, v1alpha1.EventSpecChanged, v1alpha1.EventSpecRejected)

	s.succeedStep("test")
	s.succeedStep("ship")
	s.succeedStep("cleanup")
	s.wantCreated("build", "test", "ship", "cleanup")
	s.wantPhase(v1alpha1.PhaseCompleted, v1alpha1.ReasonCompleted)
}

func TestChangingALaterStepDoesNotStopTheRunningStep(t *testing.T) {
	s := startAtSecondStep(t)
	s.changeSpec(func(spec *v1alpha1.SequentialJobSpec) { spec.Containers[2].Image = "new" })
	if decision := s.reconcile(); decision.HasActions() {
		t.Errorf("want nothing done, got %+v", decision)
	}
	s.succeedStep("test")
	s.reconcileAfter(time.Minute)

	if got := s.newestJob("ship").Spec.Template.Spec.Containers[0].Image; got != "new" {
		t.Errorf("ship runs the old image %s", got)
	}
	generation := func(step string) string { return s.newestJob(step).Annotations[v1alpha1.AnnotationGeneration] }
	if generation("build") != "1" || generation("ship") != "2" || s.sj.Status.ObservedGeneration != 2 {
		t.Errorf("want generations 1, 2 and 2, got %s, %s and %d", generation("build"), generation("ship"), s.sj.Status.ObservedGeneration)
	}
}

func TestRemovingStartedStepsCountsNoStepTwice(t *testing.T) {
	s := startAtSecondStep(t)
	s.changeSpec(func(spec *v1alpha1.SequentialJobSpec) { spec.Containers = spec.Containers[1:] }) // without a webhook
	s.succeedStep("test")
	s.succeedStep("ship")
	s.succeedStep("cleanup")
	s.wantCreated("build", "test", "ship", "cleanup")
	if got := s.sj.Status; got.State.Succeeded != 4 || FormatProgress(s.sj, false) != "3/3" {
		t.Errorf("want 4 of 4, got %+v, %s", got.State, FormatProgress(s.sj, false))
	}
}

func TestStartedStepKeepsItsOptions(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("lint", testbuilder.ContinueOnFailure()).Step("build"))
	s.changeSpec(func(spec *v1alpha1.SequentialJobSpec) { spec.Containers[0].Step = nil }) // without a webhook
	s.failStep("lint")
	s.wantCreated("lint", "build")
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
			s.changeSpec(func(spec *v1alpha1.SequentialJobSpec) { spec.Containers[2].Image = "other" })
			s.reconcile()
			if !meta.IsStatusConditionTrue(s.sj.Status.Conditions, v1alpha1.ConditionSpecAccepted) {
				t.Errorf("the change of a later step is refused: %+v", s.sj.Status.Conditions)
			}

			edited := before.DeepCopy()
			edited.Containers[1].Image = "other"
			want := []string{"spec.containers[1]: Forbidden"}
			if diff := cmp.Diff(want, errorFields(ImmutabilityViolations(before, edited, &s.sj.Status))); diff != "" {
				t.Errorf("violations that the webhook finds (-want, +got):\n%s", diff)
			}
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
	if got := stepHash(&step); got != want {
		t.Errorf("hash %s, want %s; if the change is intended, also change specHashVersion", got, want)
	}
}

func TestDefaultsOfAStepAreNotAChange(t *testing.T) {
	plain := testbuilder.Step("build")
	for name, options := range map[string]*v1alpha1.StepOptions{
		"defaults":   {BackoffLimit: new(int32), OnFailure: v1alpha1.OnFailureStop},
		"no options": {},
	} {
		step := testbuilder.Step("build")
		step.Step = options
		if stepHash(&step) != stepHash(&plain) {
			t.Errorf("a step with %s is another step", name)
		}
	}
	for name, options := range map[string]*v1alpha1.StepOptions{
		"onFailure: Continue": {OnFailure: v1alpha1.OnFailureContinue},
		"backoffLimit: 1":     {BackoffLimit: new(int32(1))},
	} {
		step := testbuilder.Step("build")
		step.Step = options
		if stepHash(&step) == stepHash(&plain) {
			t.Errorf("a step with %s is the same step", name)
		}
	}
}
