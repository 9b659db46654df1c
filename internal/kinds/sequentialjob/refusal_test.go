package sequentialjob

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/policy"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func TestInvalidLastStepFailsTheRunAtItsStart(t *testing.T) {
	s := newTestEnv(t, sequence("build", "test").Finally("cleanup").Obj())
	s.dryRunRefusals = []decision.Refusal{{Class: decision.Invalid, Step: "test", Message: "bad quantity"}}
	s.pass(
		wait(0), created(), steps("build: Skipped, Invalid", "test: Skipped, Invalid", "cleanup: Skipped, Invalid"),
		phase(v1alpha1.PhaseFailed, v1alpha1.ReasonStepInvalid), events(v1alpha1.EventSpecRejected, v1alpha1.EventFailed),
		hasCondition(v1alpha1.ConditionSpecAccepted, `False StepInvalid: step "test": bad quantity`),
		hasCondition(v1alpha1.ConditionFailed, `True StepInvalid: step "test": bad quantity`),
	)
}

func TestInvalidSpecFailsTheRunWithoutAWebhook(t *testing.T) {
	startRun(t, sequence().Step("build", testbuilder.StepImage(""))).pass(
		created(), phase(v1alpha1.PhaseFailed, v1alpha1.ReasonInvalid), hasCondition(v1alpha1.ConditionSpecAccepted,
			"False Invalid: spec.containers[0].image: Required value: set an image in the step or in the template's container named step"),
	)
}

func TestExceededQuotaDelaysTheRun(t *testing.T) {
	quota := decision.Refusal{Class: decision.QuotaExceeded, Step: "build", Message: "exceeded quota: pods"}
	for name, refuse := range map[string]func(*testEnv){
		"refused by the dry run": func(s *testEnv) { s.dryRunRefusals = []decision.Refusal{quota} },
		"refused when the claim of its workspace is created": func(s *testEnv) {
			s.sj = sequence("build").Workspace(v1alpha1.WorkspaceDelete).Obj()
			s.claimRefusal = &decision.Refusal{Class: quota.Class, Kind: "PersistentVolumeClaim", Message: quota.Message}
		},
		"refused when the Job is created":                    func(s *testEnv) { s.createRefusals["build"] = &quota },
		"refused by the dry run and when the Job is created": func(s *testEnv) { s.dryRunRefusals, s.createRefusals["build"] = []decision.Refusal{quota}, &quota },
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestEnv(t, sequence("build").Obj())
			refuse(s)
			d := s.reconcile()
			s.pass(created(), hasCondition(v1alpha1.ConditionResourcesUnavailable, "True QuotaExceeded: exceeded quota: pods"))
			s.pass(hasCondition(v1alpha1.ConditionFailed, "False NotFailed: "), events(v1alpha1.EventResourcesUnavailable))
			assert.Equal(t, "wait for the next decision", time.Second, d.RequeueAfter)

			assert.Equal(t, "wait for the next decision", 10*time.Second, s.reconcileAfter(10*time.Second).RequeueAfter)
			assert.Equal(t, "wait for the next decision", time.Minute, s.reconcileAfter(time.Hour).RequeueAfter)
			s.pass(events())

			s.dryRunRefusals, s.claimRefusal = nil, nil
			delete(s.createRefusals, "build")
			s.pass(wait(time.Minute), created("build"), wait(time.Second), steps("build: Starting"))
			require.True(t, !meta.IsStatusConditionTrue(s.sj.Status.Conditions, v1alpha1.ConditionResourcesUnavailable),
				"the condition is still True")
		})
	}
}

func TestQuotaOfALaterStepDoesNotDelayTheFirst(t *testing.T) {
	s := newTestEnv(t, sequence("build", "test").Obj())
	s.dryRunRefusals = []decision.Refusal{{Class: decision.QuotaExceeded, Step: "test", Message: "exceeded quota"}}
	s.pass(wait(0), created("build"))
}

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
			sj := sequence().Step("build", testbuilder.StepImage("good:1")).Finally("cleanup", testbuilder.StepImage("good:2")).Obj()
			test.change(&sj.Spec)
			s := newTestEnv(t, sj)
			s.policies = testbuilder.AllowImages("good:*")
			s.pass(
				wait(0), created(), phase(v1alpha1.PhasePending, v1alpha1.ReasonWaiting), hasCondition(v1alpha1.ConditionBlocked, test.want),
				hasCondition(v1alpha1.ConditionStalled, test.want), events(v1alpha1.EventPolicyViolated),
			)

			s.policies = testbuilder.AllowImages("good:*", "evil:1")
			s.pass(wait(time.Second), created("build"), wait(2*time.Second), hasCondition(v1alpha1.ConditionBlocked, "False NotBlocked: "))
		})
	}
}

func TestAChangedPolicyAffectsTheNextStepOnly(t *testing.T) {
	s := startRun(t, sequence().Step("build", testbuilder.StepImage("one:1")).Step("test", testbuilder.StepImage("two:1")))
	s.policies = testbuilder.AllowImages("three:*")
	decision := s.reconcile()
	require.True(t, !decision.HasActions(), "the running step is affected: %+v", decision)
	s.pass(succeed("build"), created("build"), steps("build: Succeeded", "test: Starting, ImageNotAllowed"), hasCondition(v1alpha1.ConditionBlocked,
		`True ImageNotAllowed: step "test": image "two:1" of container "test" is not allowed by Policy team, which allows: three:*`))
	s.policies = policy.Selection{}
	s.pass(wait(time.Second), created("build", "test"))
}
