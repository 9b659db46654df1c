package sequentialjob

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/kstatustest"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// The rows are those of docs/reference/states.md.
func TestConditionsOfEachStateOfARun(t *testing.T) {
	refused := func(class decision.Class) story {
		return story{func(s *testEnv) {
			s.createRefusals["build"] = &decision.Refusal{Class: class, Step: "build", Message: "no"}
		}, wait(0)}
	}
	runPod := func(s *testEnv) { s.runPod("build") }
	deny := func(s *testEnv) { s.policies = testbuilder.AllowImages("other:*") }
	reverse := edit(func(spec *v1alpha1.SequentialJobSpec) { slices.Reverse(spec.Containers) })
	one := func() *testbuilder.SequentialJobBuilder { return sequence("build") }
	withFinally := func() *testbuilder.SequentialJobBuilder { return sequence("build").Finally("cleanup") }
	const waits, fails, succeeds = status.InProgressStatus, status.FailedStatus, status.CurrentStatus
	for title, test := range map[string]struct {
		sj         *testbuilder.SequentialJobBuilder
		story      story
		conditions string // that are True
		reason     string
		want       status.Status
	}{
		"the first step starts":       {one(), story{wait(0)}, "Reconciling", v1alpha1.ReasonWaiting, waits},
		"a step runs":                 {one(), story{wait(0), runPod}, "Reconciling Progressing", v1alpha1.ReasonRunning, waits},
		"a finally step runs":         {withFinally(), story{wait(0), succeed("build")}, "Reconciling Progressing", v1alpha1.ReasonRunningFinally, waits},
		"it runs after a failure":     {withFinally(), story{wait(0), fail("build")}, "Reconciling Progressing", v1alpha1.ReasonRunningFinally, waits},
		"a quota is exceeded":         {one(), refused(decision.QuotaExceeded), "Reconciling", v1alpha1.ReasonQuotaExceeded, waits},
		"another object has its name": {one(), refused(decision.AlreadyExists), "Stalled", v1alpha1.ReasonNameTaken, fails},
		"its only Job is refused":     {one(), refused(decision.Invalid), "Stalled Failed", v1alpha1.ReasonStepFailed, fails},
		"an image is not allowed":     {one(), story{deny, wait(0)}, "Stalled", v1alpha1.ReasonImageNotAllowed, fails},
		"suspending":                  {one(), story{wait(0), suspendRun}, "Reconciling", v1alpha1.ReasonSuspending, waits},
		"suspended":                   {one().Suspend(), story{wait(0)}, "", v1alpha1.ReasonSuspended, waits},
		"completed":                   {one(), story{wait(0), succeed("build")}, "Ready Available", v1alpha1.ReasonCompleted, succeeds},
		"failed":                      {one(), story{wait(0), fail("build")}, "Stalled Failed", v1alpha1.ReasonStepFailed, fails},
		"failed, then a rerun starts": {one(), story{wait(0), fail("build"), rerun("Start")}, "Reconciling", v1alpha1.ReasonWaiting, waits},
		"completed, invalid rerun":    {one(), story{wait(0), succeed("build"), rerun("nope")}, "Stalled Available", v1alpha1.ReasonRerunInvalid, fails},
		"completed, invalid change": {
			one(), story{wait(0), succeed("build"), edit(setImage(" a"))}, "Stalled Available", v1alpha1.ReasonInvalid, fails,
		},
		"running, invalid change": {
			sequence("build", "test"), story{wait(0), runPod, reverse}, "Reconciling Progressing", v1alpha1.ReasonRunning, waits,
		},
	} {
		t.Run(title, func(t *testing.T) {
			s := newTestEnv(t, test.sj.Obj()).pass(test.story...)
			var got []string
			for _, kind := range []string{
				v1alpha1.ConditionReady, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled,
				v1alpha1.ConditionAvailable, v1alpha1.ConditionProgressing, v1alpha1.ConditionFailed,
			} {
				if meta.IsStatusConditionTrue(s.sj.Status.Conditions, kind) {
					got = append(got, kind)
				}
			}
			for _, kind := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled} {
				assert.Equal(t, "reason of "+kind, test.reason, meta.FindStatusCondition(s.sj.Status.Conditions, kind).Reason)
			}
			assert.Equal(t, "conditions that are True", test.conditions, strings.Join(got, " "))
			hasEnded := strings.Contains(test.conditions, "Available") || strings.Contains(test.conditions, "Failed")
			assert.Equal(t, "has a completionTime", hasEnded, s.sj.Status.CompletionTime != nil)
			for _, c := range s.sj.Status.Conditions {
				assert.Equal(t, "generation of "+c.Type, s.sj.Generation, c.ObservedGeneration)
			}
			s.sj.APIVersion, s.sj.Kind = v1alpha1.GroupVersion.String(), "SequentialJob"
			kstatustest.AssertKstatus(t, s.sj, test.want)
		})
	}
}
