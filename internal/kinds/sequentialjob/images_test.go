package sequentialjob

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/policy"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func TestARunWaitsUntilPoliciesAllowAllImages(t *testing.T) {
	for title, test := range map[string]struct {
		change func(spec *v1alpha1.SequentialJobSpec)
		want   string
	}{
		"the image of the last step": {
			func(spec *v1alpha1.SequentialJobSpec) { spec.Containers[1].Image = "evil:1" },
			`True ImageNotAllowed: step "cleanup": image "evil:1" of container "cleanup" is not allowed by Policy team, which allows: good:*`,
		},
		"an init container of the template": {
			func(spec *v1alpha1.SequentialJobSpec) {
				spec.Template = &v1alpha1.PodTemplate{PodTemplateSpec: corev1.PodTemplateSpec{Spec: corev1.PodSpec{InitContainers: []corev1.Container{{Name: "init", Image: "evil:1"}}}}}
			},
			`True ImageNotAllowed: step "build": image "evil:1" of init container "init" is not allowed by Policy team, which allows: good:*`,
		},
	} {
		t.Run(title, func(t *testing.T) {
			sj := testbuilder.SequentialJob("a", "ns").Step("build", testbuilder.StepImage("good:1")).Finally("cleanup", testbuilder.StepImage("good:2")).Obj()
			test.change(&sj.Spec)
			s := newTestEnv(t, sj)
			s.policies = testbuilder.AllowImages("good:*")
			s.reconcile()
			s.wantCreated()
			s.wantPhase(v1alpha1.PhasePending, v1alpha1.ReasonWaiting)
			s.wantCondition(v1alpha1.ConditionBlocked, test.want)
			s.wantCondition(v1alpha1.ConditionStalled, test.want)
			s.wantEvents(v1alpha1.EventPolicyViolated)

			s.policies = testbuilder.AllowImages("good:*", "evil:1")
			s.reconcileAfter(time.Second)
			s.wantCreated("build")
			s.reconcileAfter(time.Second)
			s.wantCondition(v1alpha1.ConditionBlocked, "False NotBlocked: ")
		})
	}
}

func TestAChangedPolicyAffectsTheNextStepOnly(t *testing.T) {
	s := newTestEnv(t, testbuilder.SequentialJob("a", "ns").Step("build", testbuilder.StepImage("one:1")).Step("test", testbuilder.StepImage("two:1")).Obj())
	s.reconcile()
	s.policies = testbuilder.AllowImages("three:*")
	if decision := s.reconcile(); decision.HasActions() {
		t.Errorf("the running step is affected: %+v", decision)
	}
	s.succeedStep("build")
	s.wantCreated("build")
	s.wantSteps("build: Succeeded", "test: Starting, ImageNotAllowed")
	s.wantCondition(v1alpha1.ConditionBlocked, `True ImageNotAllowed: step "test": image "two:1" of container "test" is not allowed by Policy team, which allows: three:*`)
	s.policies = policy.Selection{}
	s.reconcileAfter(time.Second)
	s.wantCreated("build", "test")
}

func TestADeadlineEndsTheWaitForAPolicy(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test").ActiveDeadline(60))
	s.policies = testbuilder.AllowImages("other:*")
	s.succeedStep("build")
	s.reconcileAfter(time.Hour)
	s.wantSteps("build: Succeeded", "test: Failed, DeadlineExceeded")
}
