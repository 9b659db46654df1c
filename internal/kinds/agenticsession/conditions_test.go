package agenticsession

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/kstatustest"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// The rows for AgenticSession in docs/conditions.md.
func TestSummaryConditionsAreReadByKstatus(t *testing.T) {
	// state is the statuses of Ready, Reconciling and Stalled, and what kstatus makes of them.
	type state struct {
		ready, reconciling, stalled metav1.ConditionStatus
		want                        status.Status
	}
	waits := state{metav1.ConditionFalse, metav1.ConditionTrue, metav1.ConditionFalse, status.InProgressStatus}
	fails := state{metav1.ConditionFalse, metav1.ConditionFalse, metav1.ConditionTrue, status.FailedStatus}
	works := state{metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionFalse, status.CurrentStatus}
	stopped := state{metav1.ConditionFalse, metav1.ConditionFalse, metav1.ConditionFalse, status.InProgressStatus}
	for title, test := range map[string]struct {
		state

		reason  string
		prepare func(s *scenario)
	}{
		"creates its first Job":                      {waits, v1alpha1.ReasonWaiting, func(*scenario) {}},
		"waits for its SessionRunner":                {waits, v1alpha1.ReasonRunnerNotFound, func(s *scenario) { s.Runner = nil }},
		"is not protected by the admission policies": {waits, v1alpha1.ReasonUnprotected, func(s *scenario) { s.Unprotected = "a does not exist" }},
		"waits for its parent": {waits, v1alpha1.ReasonParentNotFinished, func(s *scenario) {
			*s = *newContinuingScenario(s.t)
			s.Parent.Status.Phase = v1alpha1.SessionRunning
		}},
		"waits for a quota": {waits, v1alpha1.ReasonQuotaExceeded, func(s *scenario) {
			s.decideAndRecord()
			s.Refusal = &decision.Refusal{Class: decision.QuotaExceeded, Kind: "Pod", Message: "exceeded quota"}
		}},
		"another object has a name that it needs": {fails, v1alpha1.ReasonNameTaken, func(s *scenario) {
			s.decideAndRecord()
			s.Refusal = &decision.Refusal{Class: decision.AlreadyExists, Kind: "Secret", Message: "taken"}
		}},
		"is not allowed by its SessionRunner": {fails, v1alpha1.ReasonNotAllowed, func(s *scenario) { s.Session.Spec.Image = "other:1" }},
		"has an image that a Policy does not allow": {fails, v1alpha1.ReasonImageNotAllowed, func(s *scenario) {
			s.Policies = testbuilder.AllowImages("registry.example/*")
		}},
		"waits for its Pod":  {waits, v1alpha1.ReasonCreating, func(s *scenario) { s.startAttempt() }},
		"waits for an image": {waits, v1alpha1.ReasonImagePull, func(s *scenario) { s.startAttempt().setWaitingReason("ErrImagePull") }},
		"runs":               {works, v1alpha1.ReasonRunning, func(s *scenario) { s.startAttempt().startRunner() }},
		"stops":              {waits, v1alpha1.ReasonStopping, func(s *scenario) { s.startAttempt().startRunner().updateSpec(suspend) }},
		"stopped":            {stopped, v1alpha1.ReasonStopped, func(s *scenario) { s.updateSpec(suspend) }},
		"waits until other sessions end": {waits, v1alpha1.ReasonQueued, func(s *scenario) {
			*s = *newLimitedScenario(s.t, 1, 0)
			s.Capacity.Contenders = []Contender{openSession("a", "bob")}
		}},
		"its Job waits in a queue": {waits, v1alpha1.ReasonQueued, func(s *scenario) { *s = *newQueuedScenario(s.t) }},
		"another client suspended its Job": {waits, v1alpha1.ReasonJobSuspended, func(s *scenario) {
			s.startAttempt().startRunner().decideAndRecord()
			s.suspendJob().stopSuspendedPod()
		}},
		"its cost reached the limit": {fails, v1alpha1.ReasonBudgetExceeded, func(s *scenario) {
			*s = *newReportingScenario(s.t, withMaxCost("1"))
			s.reportCost("1").wantPhase(v1alpha1.SessionStopping, "")
			s.removeJobAndPod()
		}},
		"waits for a retry": {waits, v1alpha1.ReasonRetrying, func(s *scenario) { s.updateSpec(withRetryLimit(1)).startAttempt().exitRunner(1, "") }},
		"completed":         {works, v1alpha1.ReasonCompleted, func(s *scenario) { s.startAttempt().exitRunner(0, "") }},
		"failed":            {fails, v1alpha1.ReasonExitedWithError, func(s *scenario) { s.startAttempt().exitRunner(1, "") }},
		"exceeded its deadline": {fails, v1alpha1.ReasonDeadlineExceeded, func(s *scenario) {
			s.startAttempt().advanceClock(time.Hour).endJob(batchv1.JobFailed, batchv1.JobReasonDeadlineExceeded)
		}},
	} {
		t.Run(title, func(t *testing.T) {
			s := newScenario(t)
			s.Session.Status.ObservedGeneration = -1 // the CRD's default
			kstatustest.AssertKstatus(t, s.Session, status.InProgressStatus)
			test.prepare(s)
			s.decideAndRecord()
			kstatustest.AssertKstatus(t, s.Session, test.want)
			s.wantCondition(v1alpha1.ConditionReady, test.ready, test.reason)
			s.wantCondition(v1alpha1.ConditionReconciling, test.reconciling, test.reason)
			s.wantCondition(v1alpha1.ConditionStalled, test.stalled, test.reason)
		})
	}
}
