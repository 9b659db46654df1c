package schedule

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/kstatustest"
)

// The rows are those of docs/conditions.md.
func TestConditionsOfEachState(t *testing.T) {
	refused := func(class decision.Class) func(*testing.T) *scenario {
		return func(t *testing.T) *scenario {
			s := newScenario(t).at(time.Second)
			s.refusal = &decision.Refusal{Class: class, Message: "refused"}
			return s.at(time.Hour)
		}
	}
	for title, test := range map[string]struct {
		state  func(*testing.T) *scenario
		ready  metav1.ConditionStatus
		reason string
		want   status.Status
	}{
		"waiting for its next time": {func(t *testing.T) *scenario { return newScenario(t).at(time.Second) }, metav1.ConditionTrue, v1alpha1.ReasonScheduled, status.CurrentStatus},
		"a run is active":           {func(t *testing.T) *scenario { return newScenario(t).at(time.Second).at(time.Hour) }, metav1.ConditionTrue, v1alpha1.ReasonScheduled, status.CurrentStatus},
		"a time waits for an active run": {func(t *testing.T) *scenario {
			return newScenario(t, concurrency(v1alpha1.ConcurrencyForbid)).at(time.Second).at(time.Hour).at(2 * time.Hour)
		}, metav1.ConditionTrue, v1alpha1.ReasonWaitingForRun, status.CurrentStatus},
		"suspended": {func(t *testing.T) *scenario {
			return newScenario(t, func(s *v1alpha1.Schedule) { s.Spec.Suspend = true }).at(time.Second)
		}, metav1.ConditionTrue, v1alpha1.ReasonSuspended, status.CurrentStatus},
		"a quota has no room": {refused(decision.QuotaExceeded), metav1.ConditionFalse, "QuotaExceeded", status.InProgressStatus},
		"the run was refused": {refused(decision.Invalid), metav1.ConditionFalse, v1alpha1.ReasonRunRefused, status.FailedStatus},
		"the run has no name": {refused(decision.AlreadyExists), metav1.ConditionFalse, v1alpha1.ReasonRunRefused, status.FailedStatus},
		"the condition fails": {func(t *testing.T) *scenario {
			return newScenario(t, when("runs[0].succeeded")).at(time.Second).at(time.Hour)
		}, metav1.ConditionFalse, v1alpha1.ReasonWhenFailed, status.FailedStatus},
		"too many runs failed": {failing, metav1.ConditionFalse, v1alpha1.ReasonTooManyFailures, status.FailedStatus},
		"the schedule is wrong": {func(t *testing.T) *scenario {
			return newScenario(t, func(s *v1alpha1.Schedule) { s.Spec.Schedule = "@every 1h" }).at(0)
		}, metav1.ConditionFalse, v1alpha1.ReasonScheduleInvalid, status.FailedStatus},
		"its kind is disabled": {func(t *testing.T) *scenario {
			s := newScenario(t)
			d := Decide(Observation{Schedule: s.schedule, KindDisabled: true, Now: created})
			s.store(&d)
			return s
		}, metav1.ConditionFalse, v1alpha1.ReasonKindDisabled, status.FailedStatus},
		"the clock was wrong": {func(t *testing.T) *scenario { return newScenario(t).at(time.Second).at(24 * time.Hour).at(time.Hour) }, metav1.ConditionFalse, v1alpha1.ReasonClockSkewed, status.FailedStatus},
	} {
		t.Run(title, func(t *testing.T) {
			s := test.state(t).wantReady(test.ready, test.reason, "")
			s.schedule.APIVersion, s.schedule.Kind = v1alpha1.GroupVersion.String(), "Schedule"
			kstatustest.AssertKstatus(t, s.schedule, test.want)
		})
	}
}
