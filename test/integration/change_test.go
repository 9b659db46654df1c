package integration

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func TestPendingStepsFollowAChangedSpec(t *testing.T) {
	t.Parallel()
	s := createSequence(t, testbuilder.SequentialJob("changed", "").Step("a").Step("b").Obj())
	s.waitForPod("a")
	running := s.waitForJob("a")
	s.patchSequence(func(sj *v1alpha1.SequentialJob) {
		sj.Spec.Containers[1].Image = "registry.example/b:2"
		sj.Spec.Containers = append(sj.Spec.Containers, testbuilder.Step("c"))
	})
	s.wantEvent(v1alpha1.EventSpecChanged)
	s.succeedStep("a")
	if image := s.waitForJob("b").Spec.Template.Spec.Containers[0].Image; image != "registry.example/b:2" {
		t.Errorf("b runs %s", image)
	}
	s.succeedStep("b")
	s.succeedStep("c")
	s.waitForPhase(v1alpha1.PhaseCompleted)
	if uid := s.stepStatus("a").JobUID; uid != running.UID {
		t.Error("the running step was interrupted")
	}
	generation := func(step string) string { return s.waitForJob(step).Annotations[v1alpha1.AnnotationGeneration] }
	if first, second := generation("a"), generation("b"); first != "1" || second != "2" {
		t.Errorf("generations %s and %s, want 1 and 2", first, second)
	}
}

func TestAStepThatDoesNotStartIsCorrectedByAPatch(t *testing.T) {
	t.Parallel()
	for reason, obstruct := range map[string]func(*corev1.PodTemplateSpec){
		v1alpha1.ReasonImagePull:      func(template *corev1.PodTemplateSpec) { template.Annotations = map[string]string{simStuck: "true"} },
		corev1.PodReasonUnschedulable: func(template *corev1.PodTemplateSpec) { template.Spec.NodeSelector = map[string]string{"none": "such"} },
		corev1.PodReasonSchedulingGated: func(template *corev1.PodTemplateSpec) {
			template.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/gate"}}
		},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			template := &v1alpha1.PodTemplate{}
			obstruct(&template.PodTemplateSpec)
			sj := testbuilder.SequentialJob("corrected", "").Step("a").Step("b").Obj()
			sj.Spec.Template = template
			s := createSequence(t, sj)
			first := s.waitForJob("a")
			s.waitUntil("the reason", func(*v1alpha1.SequentialJob) bool { return s.stepStatus("a").Reason == reason })
			s.patchSequence(func(sj *v1alpha1.SequentialJob) {
				delete(sj.Spec.Template.Annotations, simStuck)
				sj.Spec.Template.Spec, sj.Spec.Containers[0].Image = corev1.PodSpec{}, "registry.example/a:2"
			})
			s.waitUntil("the next attempt", func(*v1alpha1.SequentialJob) bool { return s.stepStatus("a").Attempt == 2 })
			s.wantEvent(v1alpha1.EventJobReplaced)
			s.succeedStep("a")
			s.succeedStep("b")
			s.waitForPhase(v1alpha1.PhaseCompleted)
			if image := s.waitForJob("a").Spec.Template.Spec.Containers[0].Image; image != "registry.example/a:2" || s.stepStatus("a").JobUID == first.UID {
				t.Errorf("a ran %s in Job %s", image, s.stepStatus("a").JobUID)
			}
		})
	}
}
