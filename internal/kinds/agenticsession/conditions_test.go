package agenticsession

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/kstatustest"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// The rows for AgenticSession in docs/conditions.md.
func TestSummaryConditionsAreReadByKstatus(t *testing.T) {
	const isTrue, isFalse = metav1.ConditionTrue, metav1.ConditionFalse
	tests := map[string]struct {
		prepare                     func(t *testing.T) *scenario
		ready, reconciling, stalled metav1.ConditionStatus
		reason                      string
		want                        status.Status
	}{
		"creates its first Job": {
			func(t *testing.T) *scenario { return newScenario(t) },
			isFalse, isTrue, isFalse, v1alpha1.ReasonWaiting, status.InProgressStatus,
		},
		"waits for its SessionRunner": {
			func(t *testing.T) *scenario {
				s := newScenario(t)
				s.Runner = nil
				return s
			},
			isFalse, isTrue, isFalse, v1alpha1.ReasonRunnerNotFound, status.InProgressStatus,
		},
		"is not protected by the admission policies": {
			func(t *testing.T) *scenario {
				s := newScenario(t)
				s.Unprotected = "ValidatingAdmissionPolicy a does not exist"
				return s
			},
			isFalse, isTrue, isFalse, v1alpha1.ReasonUnprotected, status.InProgressStatus,
		},
		"waits for its parent": {
			func(t *testing.T) *scenario {
				s := newContinuingScenario(t)
				s.Parent.Status.Phase = v1alpha1.SessionRunning
				return s
			},
			isFalse, isTrue, isFalse, v1alpha1.ReasonParentNotFinished, status.InProgressStatus,
		},
		"waits for a quota": {
			func(t *testing.T) *scenario {
				s := newScenario(t)
				s.decideAndRecord()
				s.Refusal = &decision.Refusal{Class: decision.QuotaExceeded, Kind: "Pod", Message: "exceeded quota"}
				return s
			},
			isFalse, isTrue, isFalse, v1alpha1.ReasonQuotaExceeded, status.InProgressStatus,
		},
		"another object has a name that it needs": {
			func(t *testing.T) *scenario {
				s := newScenario(t)
				s.decideAndRecord()
				s.Refusal = &decision.Refusal{Class: decision.AlreadyExists, Kind: "Secret", Message: "taken"}
				return s
			},
			isFalse, isFalse, isTrue, v1alpha1.ReasonNameTaken, status.FailedStatus,
		},
		"is not allowed by its SessionRunner": {
			func(t *testing.T) *scenario {
				return newScenario(t, func(spec *v1alpha1.AgenticSessionSpec) { spec.Image = "other:1" })
			},
			isFalse, isFalse, isTrue, v1alpha1.ReasonNotAllowed, status.FailedStatus,
		},
		"has an image that a Policy does not allow": {
			func(t *testing.T) *scenario {
				s := newScenario(t)
				s.Policies = testbuilder.AllowImages("registry.example/*")
				return s
			},
			isFalse, isFalse, isTrue, v1alpha1.ReasonImageNotAllowed, status.FailedStatus,
		},
		"waits for its Pod": {
			func(t *testing.T) *scenario { return newScenario(t).startAttempt() },
			isFalse, isTrue, isFalse, v1alpha1.ReasonCreating, status.InProgressStatus,
		},
		"waits for an image": {
			func(t *testing.T) *scenario { return newScenario(t).startAttempt().setWaitingReason("ErrImagePull") },
			isFalse, isTrue, isFalse, v1alpha1.ReasonImagePull, status.InProgressStatus,
		},
		"runs": {
			func(t *testing.T) *scenario { return newScenario(t).startAttempt().startRunner() },
			isTrue, isFalse, isFalse, v1alpha1.ReasonRunning, status.CurrentStatus,
		},
		"stops": {
			func(t *testing.T) *scenario {
				return newScenario(t).startAttempt().startRunner().updateSpec(suspend)
			},
			isFalse, isTrue, isFalse, v1alpha1.ReasonStopping, status.InProgressStatus,
		},
		"stopped": {
			func(t *testing.T) *scenario { return newScenario(t, suspend) },
			isFalse, isFalse, isFalse, v1alpha1.ReasonStopped, status.InProgressStatus,
		},
		"waits until other sessions end": {
			func(t *testing.T) *scenario {
				s := newLimitedScenario(t, 1, 0)
				s.Capacity.Contenders = []Contender{openSession("a", "bob")}
				return s
			},
			isFalse, isTrue, isFalse, v1alpha1.ReasonQueued, status.InProgressStatus,
		},
		"its Job waits in a queue": {
			func(t *testing.T) *scenario { return newQueuedScenario(t) },
			isFalse, isTrue, isFalse, v1alpha1.ReasonQueued, status.InProgressStatus,
		},
		"another client suspended its Job": {
			func(t *testing.T) *scenario {
				s := newScenario(t).startAttempt().startRunner()
				s.decideAndRecord()
				return s.suspendJob().stopSuspendedPod()
			},
			isFalse, isTrue, isFalse, v1alpha1.ReasonJobSuspended, status.InProgressStatus,
		},
		"its cost reached the limit": {
			func(t *testing.T) *scenario {
				s := newCostScenario(t, withMaxCost("1")).reportCost("1")
				s.wantPhase(v1alpha1.SessionStopping, "")
				return s.removeJobAndPod()
			},
			isFalse, isFalse, isTrue, v1alpha1.ReasonBudgetExceeded, status.FailedStatus,
		},
		"waits for a retry": {
			func(t *testing.T) *scenario {
				return newScenario(t, withRetryLimit(1)).startAttempt().exitRunner(1, "")
			},
			isFalse, isTrue, isFalse, v1alpha1.ReasonRetrying, status.InProgressStatus,
		},
		"completed": {
			func(t *testing.T) *scenario { return newScenario(t).startAttempt().exitRunner(0, "") },
			isTrue, isFalse, isFalse, v1alpha1.ReasonCompleted, status.CurrentStatus,
		},
		"failed": {
			func(t *testing.T) *scenario { return newScenario(t).startAttempt().exitRunner(1, "") },
			isFalse, isFalse, isTrue, v1alpha1.ReasonExitedWithError, status.FailedStatus,
		},
		"exceeded its deadline": {
			func(t *testing.T) *scenario {
				return newScenario(t).startAttempt().advanceClock(time.Hour).endJob(batchv1.JobFailed, batchv1.JobReasonDeadlineExceeded)
			},
			isFalse, isFalse, isTrue, v1alpha1.ReasonDeadlineExceeded, status.FailedStatus,
		},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			s := test.prepare(t)
			s.decideAndRecord()
			kstatustest.AssertKstatus(t, s.Session, test.want)
			for conditionType, want := range map[string]metav1.ConditionStatus{
				v1alpha1.ConditionReady: test.ready, v1alpha1.ConditionReconciling: test.reconciling, v1alpha1.ConditionStalled: test.stalled,
			} {
				c := meta.FindStatusCondition(s.Session.Status.Conditions, conditionType)
				if c == nil || c.Status != want || c.Reason != test.reason {
					t.Errorf("condition %+v, want %s=%s (%s)", c, conditionType, want, test.reason)
				}
			}
		})
	}
}

func TestSessionWithoutStatusIsInProgress(t *testing.T) {
	s := newScenario(t)
	s.Session.Status.ObservedGeneration = -1 // the CRD's default
	kstatustest.AssertKstatus(t, s.Session, status.InProgressStatus)
}
