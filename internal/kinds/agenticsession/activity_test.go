package agenticsession

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
)

// newIdleScenario returns a session with an inactivityTimeout of 10 minutes whose runner just started.
func newIdleScenario(t *testing.T) *scenario {
	t.Helper()
	return newReportingScenario(t, func(spec *v1alpha1.AgenticSessionSpec) { spec.Limits.InactivityTimeout = seconds(600) })
}

// renew sets the time that the runner wrote into its Lease, which is observed now.
func (s *scenario) renew(renewTime time.Time) *scenario {
	s.Activity = &Activity{RenewTime: renewTime, ObservedTime: s.Now, CreationTime: testStartTime}
	return s
}

// wantStoppedWhenIdleFor checks that the session is stopped after this time, and not before.
func (s *scenario) wantStoppedWhenIdleFor(d time.Duration) {
	s.t.Helper()
	due := s.Now.Add(d)
	for s.Now.Before(due) {
		decision := s.wantPhase(v1alpha1.SessionRunning, "")
		require.True(s.t, decision.RequeueAfter > 0, "nothing reconciles the session when its time is over")
		s.advanceClock(min(decision.RequeueAfter, due.Sub(s.Now)))
	}
	s.wantPhase(v1alpha1.SessionStopping, "")
	require.Equal(s.t, v1alpha1.StopInactivity, s.Session.Status.StoppedReason)
}

// A runner may write any time into its Lease, and its clock may be wrong.
func TestInactivityCountsFromWhenTheLeaseChangedNotFromTheTimeInIt(t *testing.T) {
	for title, renewTime := range map[string]time.Time{
		"a time in 2099":         time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC),
		"a time in 1999":         time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC),
		"the current time":       testStartTime.Add(5 * time.Minute),
		"the start of the epoch": time.Unix(0, 0),
	} {
		t.Run(title, func(t *testing.T) {
			s := newIdleScenario(t)
			s.advanceClock(5*time.Minute).renew(renewTime).wantPhase(v1alpha1.SessionRunning, "")
			s.wantCondition(v1alpha1.ConditionRunnerReporting, metav1.ConditionTrue, v1alpha1.ReasonReporting)
			s.advanceClock(5*time.Minute).wantPhase(v1alpha1.SessionRunning, "")
			s.renew(renewTime.Add(time.Second)).wantStoppedWhenIdleFor(10 * time.Minute)
		})
	}
}

func TestSessionWhoseLeaseWasNeverRenewedIsNotStoppedAsIdle(t *testing.T) {
	s := newIdleScenario(t)
	s.wantCondition(v1alpha1.ConditionRunnerReporting, metav1.ConditionUnknown, v1alpha1.ReasonActivityUnknown)
	s.advanceClock(24*time.Hour).wantPhase(v1alpha1.SessionRunning, "")
	s.wantCondition(v1alpha1.ConditionRunnerReporting, metav1.ConditionUnknown, v1alpha1.ReasonActivityUnknown)
	require.True(t, s.Session.Status.Attempt.LastActivityTime == nil, "an activity is recorded")
	s.renew(s.Now).wantStoppedWhenIdleFor(10 * time.Minute)
}

// What an earlier attempt wrote is no activity of this one.
func TestRenewalsOfEarlierAttemptsDoNotCount(t *testing.T) {
	s := newIdleScenario(t)
	s.renew(s.Now).wantPhase(v1alpha1.SessionRunning, "")
	s.renew(s.Now.Add(time.Second)).exitRunner(0, "").wantPhase(v1alpha1.SessionCompleted, "")
	s.updateSpec(requestNextRun).startAttempt().startRunner().wantPhase(v1alpha1.SessionRunning, "")
	s.wantCondition(v1alpha1.ConditionRunnerReporting, metav1.ConditionUnknown, v1alpha1.ReasonActivityUnknown)
	s.advanceClock(time.Hour).wantPhase(v1alpha1.SessionRunning, "")
}

// The restarted operator observes the Lease for the first time, but knows its content.
func TestInactivityCountsOnAfterARestartOfTheOperator(t *testing.T) {
	s := newIdleScenario(t)
	s.renew(s.Now).wantPhase(v1alpha1.SessionRunning, "")
	s.advanceClock(9 * time.Minute)
	s.Activity.ObservedTime = s.Now
	s.wantStoppedWhenIdleFor(time.Minute)
}

// A runner can change its Lease at most as often as it wants, but the status changes at most once a minute.
func TestActivityIsRecordedAtMostOnceAMinute(t *testing.T) {
	s := newIdleScenario(t)
	writes := 0
	for range 600 {
		before := s.Session
		if decision := s.advanceClock(time.Second).renew(s.Now).decideAndRecord(); decision.ChangesStatus(before) {
			writes++
		}
	}
	require.True(t, writes >= 9 && writes <= 11, "%d writes in 10 minutes", writes)
	s.wantStoppedWhenIdleFor(10 * time.Minute)
}

func TestChangedSessionRunnerDoesNotDisableTheInactivityLimit(t *testing.T) {
	for title, change := range map[string]func(s *scenario){
		"the SessionRunner is deleted":          func(s *scenario) { s.Runner = nil },
		"activityLease is removed":              func(s *scenario) { s.Runner.Spec.ActivityLease = false },
		"the session exceeds its limits":        func(s *scenario) { s.Runner.Spec.Image = "other:1" },
		"it is deleted, and created without it": func(s *scenario) { s.Runner = newTestRunner() },
	} {
		t.Run(title, func(t *testing.T) {
			s := newIdleScenario(t)
			s.renew(s.Now).wantPhase(v1alpha1.SessionRunning, "")
			change(s)
			s.wantStoppedWhenIdleFor(10 * time.Minute)
		})
		t.Run(title+", and the Lease is deleted", func(t *testing.T) {
			s := newIdleScenario(t)
			change(s)
			delete(s.Children, ChildKey{"Lease", LeaseName("fix")})
			decision := s.decideAndRecord()
			require.True(t, slices.Contains(objectKinds(decision.ApplyObjects), "Lease"), "the Lease is not created again")
		})
	}
}

// The runner cannot delete its Lease. While it does not exist, the runner can report nothing.
func TestDeletedLeaseDoesNotStopASession(t *testing.T) {
	for _, missing := range []time.Duration{0, time.Hour} {
		s := newIdleScenario(t)
		s.renew(s.Now).wantPhase(v1alpha1.SessionRunning, "")
		s.advanceClock(time.Minute).Activity = nil
		if missing > 0 {
			s.advanceClock(missing).wantPhase(v1alpha1.SessionRunning, "")
		}
		s.Activity = &Activity{CreationTime: s.Now}
		s.wantStoppedWhenIdleFor(10 * time.Minute)
	}
}

// The lower limit of session and SessionRunner applies, as it was when the attempt began.
func TestAnIdleSessionStopsAtTheLowerLimit(t *testing.T) {
	for title, row := range map[string]struct {
		session, runner *v1alpha1.Duration
		want            time.Duration
	}{
		"only the SessionRunner has a limit":      {nil, seconds(600), 10 * time.Minute},
		"the session asks for no limit":           {seconds(0), seconds(600), 10 * time.Minute},
		"the session has a lower limit":           {seconds(300), seconds(600), 5 * time.Minute},
		"the session has a higher limit":          {seconds(1200), seconds(600), 10 * time.Minute},
		"the SessionRunner asks for no limit":     {seconds(600), seconds(0), 10 * time.Minute},
		"neither has a limit":                     {nil, nil, 0},
		"both ask for no limit":                   {seconds(0), seconds(0), 0},
		"the limit is shorter than its precision": {nil, seconds(30), 30 * time.Second},
	} {
		t.Run(title, func(t *testing.T) {
			s := newScenario(t, func(spec *v1alpha1.AgenticSessionSpec) { spec.Limits.InactivityTimeout = row.session })
			s.Runner.Spec.ActivityLease, s.Runner.Spec.Limits.InactivityTimeout = true, row.runner
			s.startAttempt().Activity = &Activity{CreationTime: s.Now}
			s.startRunner().renew(s.Now).wantPhase(v1alpha1.SessionRunning, "")
			s.Runner.Spec.Limits.InactivityTimeout = seconds(1) // for the next attempt
			if row.want > 0 {
				s.wantStoppedWhenIdleFor(row.want)
				return
			}
			s.advanceClock(3*time.Hour).wantPhase(v1alpha1.SessionRunning, "")
		})
	}
}

// A SessionRunner that gets activityLease later changes the next attempt: the Pod of this one has no token.
func TestAttemptWithoutALeaseHasNoInactivityLimit(t *testing.T) {
	s := newRunningScenario(t)
	s.Runner.Spec.ActivityLease = true
	s.updateSpec(func(spec *v1alpha1.AgenticSessionSpec) { spec.Limits.InactivityTimeout = seconds(60) })
	s.renew(s.Now).advanceClock(time.Hour).wantPhase(v1alpha1.SessionRunning, "")
}
