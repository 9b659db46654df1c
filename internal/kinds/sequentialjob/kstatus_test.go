package sequentialjob

import (
	"slices"
	"testing"
	"time"

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
	start := startRun
	refused := func(class decision.Class) func(*testing.T) *testEnv {
		return func(t *testing.T) *testEnv {
			s := newTestEnv(t, testbuilder.SequentialJob("a", "ns").Step("build").Obj())
			s.createRefusals["build"] = &decision.Refusal{Class: class, Step: "build", Message: "refused"}
			s.reconcile()
			return s
		}
	}
	finished := func(t *testing.T) *testEnv {
		s := start(t, testbuilder.SequentialJob("a", "ns").Step("build"))
		s.succeedStep("build")
		return s
	}
	tests := map[string]struct {
		state                       func(t *testing.T) *testEnv
		ready, reconciling, stalled bool
		reason                      string
		want                        status.Status
	}{
		"the first step starts": {func(t *testing.T) *testEnv {
			return start(t, testbuilder.SequentialJob("a", "ns").Step("build"))
		}, false, true, false, v1alpha1.ReasonWaiting, status.InProgressStatus},
		"a step runs": {func(t *testing.T) *testEnv {
			s := start(t, testbuilder.SequentialJob("a", "ns").Step("build"))
			s.runPod("build")
			return s
		}, false, true, false, v1alpha1.ReasonRunning, status.InProgressStatus},
		"a finally step runs": {func(t *testing.T) *testEnv {
			s := start(t, testbuilder.SequentialJob("a", "ns").Step("build").Finally("cleanup"))
			s.succeedStep("build")
			return s
		}, false, true, false, v1alpha1.ReasonRunningFinally, status.InProgressStatus},
		"a quota is exceeded":                 {refused(decision.QuotaExceeded), false, true, false, v1alpha1.ReasonQuotaExceeded, status.InProgressStatus},
		"another object has the Job's name":   {refused(decision.AlreadyExists), false, false, true, v1alpha1.ReasonNameTaken, status.FailedStatus},
		"the API server refuses the only Job": {refused(decision.Invalid), false, false, true, v1alpha1.ReasonStepFailed, status.FailedStatus},
		"a Policy does not allow an image": {func(t *testing.T) *testEnv {
			s := newTestEnv(t, testbuilder.SequentialJob("a", "ns").Step("build").Obj())
			s.policies = testbuilder.AllowImages("other:*")
			s.reconcile()
			return s
		}, false, false, true, v1alpha1.ReasonImageNotAllowed, status.FailedStatus},
		"suspending": {func(t *testing.T) *testEnv {
			s := start(t, testbuilder.SequentialJob("a", "ns").Step("build"))
			s.changeSpec(setSuspendTrue)
			s.reconcile()
			return s
		}, false, true, false, v1alpha1.ReasonSuspending, status.InProgressStatus},
		"suspended": {func(t *testing.T) *testEnv {
			return start(t, testbuilder.SequentialJob("a", "ns").Step("build").Suspend())
		}, false, false, false, v1alpha1.ReasonSuspended, status.InProgressStatus},
		"completed": {finished, true, false, false, v1alpha1.ReasonCompleted, status.CurrentStatus},
		"failed": {func(t *testing.T) *testEnv {
			s := start(t, testbuilder.SequentialJob("a", "ns").Step("build"))
			s.failStep("build")
			return s
		}, false, false, true, v1alpha1.ReasonStepFailed, status.FailedStatus},
		"completed, then an invalid rerun was requested": {func(t *testing.T) *testEnv {
			s := finished(t)
			s.changeSpec(requestRerun("nope"))
			s.reconcile()
			return s
		}, false, false, true, v1alpha1.ReasonRerunInvalid, status.FailedStatus},
		"completed, then an invalid change that no webhook refused": {func(t *testing.T) *testEnv {
			s := finished(t)
			s.changeSpec(func(spec *v1alpha1.SequentialJobSpec) { spec.Containers[0].Image = " a" })
			s.reconcile()
			return s
		}, false, false, true, v1alpha1.ReasonInvalid, status.FailedStatus},
		"running, and an invalid change was reported": {func(t *testing.T) *testEnv {
			s := start(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test"))
			s.runPod("build")
			s.changeSpec(func(spec *v1alpha1.SequentialJobSpec) { slices.Reverse(spec.Containers) })
			s.reconcileAfter(time.Second)
			return s
		}, false, true, false, v1alpha1.ReasonRunning, status.InProgressStatus},
	}
	for title, test := range tests {
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
			s.sj.APIVersion, s.sj.Kind = v1alpha1.GroupVersion.String(), "SequentialJob"
			kstatustest.AssertKstatus(t, s.sj, test.want)
		})
	}
}

func TestNewSequentialJobIsInProgress(t *testing.T) {
	sj := testbuilder.SequentialJob("a", "ns").Step("build").Obj()
	sj.APIVersion, sj.Kind = v1alpha1.GroupVersion.String(), "SequentialJob"
	sj.Status.ObservedGeneration = -1 // the default of the CRD
	kstatustest.AssertKstatus(t, sj, status.InProgressStatus)
}
