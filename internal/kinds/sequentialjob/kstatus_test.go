package sequentialjob

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/kstatustest"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// The rows are those of docs/reference/states.md.
func TestConditionsOfEachState(t *testing.T) {
	reached := func(sj *testbuilder.SequentialJobBuilder, story ...func(*testEnv)) func(*testing.T) *testEnv {
		return func(t *testing.T) *testEnv { return startRun(t, sj).pass(story...) }
	}
	runPodOf := func(step string) func(*testEnv) { return func(s *testEnv) { s.runPod(step) } }
	refused := func(class decision.Class) func(*testing.T) *testEnv {
		return func(t *testing.T) *testEnv {
			s := newTestEnv(t, sequence("build").Obj())
			s.createRefusals["build"] = &decision.Refusal{Class: class, Step: "build", Message: "refused"}
			s.reconcile()
			return s
		}
	}
	for title, test := range map[string]struct {
		state                       func(t *testing.T) *testEnv
		ready, reconciling, stalled bool
		reason                      string
		want                        status.Status
	}{
		"the first step starts": {reached(sequence("build")), false, true, false, v1alpha1.ReasonWaiting, status.InProgressStatus},
		"a step runs": {
			reached(sequence("build"), runPodOf("build")), false, true, false, v1alpha1.ReasonRunning, status.InProgressStatus,
		},
		"a finally step runs": {
			reached(sequence("build").Finally("cleanup"), succeed("build")), false, true, false, v1alpha1.ReasonRunningFinally, status.InProgressStatus,
		},
		"a quota is exceeded":                 {refused(decision.QuotaExceeded), false, true, false, v1alpha1.ReasonQuotaExceeded, status.InProgressStatus},
		"another object has the Job's name":   {refused(decision.AlreadyExists), false, false, true, v1alpha1.ReasonNameTaken, status.FailedStatus},
		"the API server refuses the only Job": {refused(decision.Invalid), false, false, true, v1alpha1.ReasonStepFailed, status.FailedStatus},
		"a Policy does not allow an image": {func(t *testing.T) *testEnv {
			s := newTestEnv(t, sequence("build").Obj())
			s.policies = testbuilder.AllowImages("other:*")
			s.reconcile()
			return s
		}, false, false, true, v1alpha1.ReasonImageNotAllowed, status.FailedStatus},
		"suspending": {reached(sequence("build"), suspendRun), false, true, false, v1alpha1.ReasonSuspending, status.InProgressStatus},
		"suspended":  {reached(sequence("build").Suspend()), false, false, false, v1alpha1.ReasonSuspended, status.InProgressStatus},
		"completed":  {reached(sequence("build"), succeed("build")), true, false, false, v1alpha1.ReasonCompleted, status.CurrentStatus},
		"failed":     {reached(sequence("build"), fail("build")), false, false, true, v1alpha1.ReasonStepFailed, status.FailedStatus},
		"completed, then an invalid rerun was requested": {
			reached(sequence("build"), succeed("build"), rerun("nope")), false, false, true, v1alpha1.ReasonRerunInvalid, status.FailedStatus,
		},
		"completed, then an invalid change that no webhook refused": {
			reached(sequence("build"), succeed("build"), edit(setImage(" a"))), false, false, true, v1alpha1.ReasonInvalid, status.FailedStatus,
		},
		"running, and an invalid change was reported": {
			reached(sequence("build", "test"), runPodOf("build"), edit(func(spec *v1alpha1.SequentialJobSpec) { slices.Reverse(spec.Containers) })),
			false, true, false, v1alpha1.ReasonRunning, status.InProgressStatus,
		},
	} {
		t.Run(title, func(t *testing.T) {
			s := test.state(t)
			for conditionType, want := range map[string]bool{
				v1alpha1.ConditionReady:       test.ready,
				v1alpha1.ConditionReconciling: test.reconciling,
				v1alpha1.ConditionStalled:     test.stalled,
			} {
				got := meta.FindStatusCondition(s.sj.Status.Conditions, conditionType)
				if (got.Status == metav1.ConditionTrue) != want || got.Reason != test.reason {
					t.Errorf("%s is %s, %s; want %t, %s", conditionType, got.Status, got.Reason, want, test.reason)
				}
			}
			for _, c := range s.sj.Status.Conditions {
				if c.ObservedGeneration != s.sj.Generation {
					t.Errorf("%s is of generation %d, want %d", c.Type, c.ObservedGeneration, s.sj.Generation)
				}
			}
			s.sj.APIVersion, s.sj.Kind = v1alpha1.GroupVersion.String(), "SequentialJob"
			kstatustest.AssertKstatus(t, s.sj, test.want)
		})
	}
}
