package agenticsession

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

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

func withMaxCost(dollars v1alpha1.Number) func(spec *v1alpha1.AgenticSessionSpec) {
	return func(spec *v1alpha1.AgenticSessionSpec) { spec.Limits.MaxCostUSD = &dollars }
}

// newReportingScenario returns a session whose runner has a Lease and just started.
func newReportingScenario(t *testing.T, change ...func(spec *v1alpha1.AgenticSessionSpec)) *scenario {
	t.Helper()
	s := newScenario(t, change...)
	s.Runner.Spec.ActivityLease = true
	s.startAttempt().Activity = &Activity{CreationTime: s.Now}
	s.startRunner().wantPhase(v1alpha1.SessionRunning, "")
	return s
}

// reportCost sets the cost that the runner of the open attempt writes into its Lease.
func (s *scenario) reportCost(dollars string) *scenario {
	return s.writeCost(s.Session.Status.Attempt.JobName + "=" + dollars)
}

func (s *scenario) writeCost(annotation string) *scenario {
	activity := ptr.Deref(s.Activity, Activity{})
	activity.Cost = activity.Cost.Next(annotation)
	s.Activity = &activity
	return s
}

func (s *scenario) wantTotalCost(want v1alpha1.Number) {
	s.t.Helper()
	require.Equal(s.t, want, ptr.Deref(s.Session.Status.TotalCostUSD, "unknown"))
}

func TestSessionIsStoppedWhenItsReportedCostReachesTheLimit(t *testing.T) {
	for title, test := range map[string]struct{ spec, runner v1alpha1.Number }{
		"the limit of the session":         {"2", ""},
		"the limit of the SessionRunner":   {"", "2"},
		"a higher one does not apply":      {"3", "2"},
		"a session can lower it":           {"2", "30"},
		"a limit of millionths of dollars": {"1.999999", ""},
	} {
		t.Run(title, func(t *testing.T) {
			s := newScenario(t, withRetryLimit(5))
			if test.spec != "" {
				s.Session.Spec.Limits.MaxCostUSD = &test.spec
			}
			if test.runner != "" {
				s.Runner.Spec.Limits.MaxCostUSD = &test.runner
			}
			s.Runner.Spec.ActivityLease = true
			s.startAttempt().startRunner().reportCost("1.999998").wantPhase(v1alpha1.SessionRunning, "")
			s.reportCost("2.25")
			decision := s.wantPhase(v1alpha1.SessionStopping, "")
			require.True(t, len(decision.DeleteJobs) == 1 && s.Session.Status.StoppedReason == v1alpha1.StopBudgetExceeded,
				"%d Jobs are deleted, stopped for %q", len(decision.DeleteJobs), s.Session.Status.StoppedReason)
			s.markJobDeleted().reportCost("2.5").wantPhase(v1alpha1.SessionStopping, "")
			s.removeJobAndPod().wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonBudgetExceeded)
			s.wantEvent(v1alpha1.EventBudgetExceeded)
			s.wantTotalCost("2.5")
			run := s.Session.Status.Attempts[0]
			require.True(t, *run.CostUSD == "2.5" && strings.Contains(run.Message, "increase maxCostUSD of"), "%+v", run)
		})
	}
}

func TestNoRunStartsBeyondTheCostLimitUntilItIsIncreased(t *testing.T) {
	s := newReportingScenario(t, withMaxCost("1"))
	s.exitRunner(0, `{"costUSD": 1.5}`).wantPhase(v1alpha1.SessionCompleted, "")
	require.True(t, s.updateSpec(requestNextRun).wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonBudgetExceeded).CreateJob == nil,
		"a Job is created")
	s.updateSpec(requestNextRun).updateSpec(withMaxCost("1.5")).wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonBudgetExceeded)
	s.updateSpec(requestNextRun).updateSpec(withMaxCost("2")).startAttempt().startRunner().wantPhase(v1alpha1.SessionRunning, "")
	s.reportCost("0.5").wantPhase(v1alpha1.SessionStopping, "")
}

func TestRetryThatWaitsFailsWhenTheCostLimitIsLowered(t *testing.T) {
	s := newReportingScenario(t, withRetryLimit(5), withMaxCost("10"))
	s.exitRunner(1, `{"costUSD": 5}`).wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonRetrying)
	s.updateSpec(withMaxCost("3")).wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonBudgetExceeded)
}

func TestResultCountsIfItIsHigherThanTheReportedCost(t *testing.T) {
	for result, want := range map[string]v1alpha1.Number{
		`{"costUSD": 3}`: "3", `{"costUSD": 1}`: "2", `{}`: "2", `{"costUSD": -1}`: "2", `broken`: "2", ``: "2",
	} {
		s := newReportingScenario(t).reportCost("2")
		s.exitRunner(0, result).decideAndRecord()
		s.wantTotalCost(want)
		cost := s.Session.Status.Attempts[0].CostUSD
		require.True(t, cost != nil && *cost == want, "the run cost %v dollars with the result %q, want %s", cost, result, want)
	}
}

func TestReportsOfOtherAttemptsDoNotCount(t *testing.T) {
	s := newReportingScenario(t, withMaxCost("10")).reportCost("4")
	s.exitRunner(0, "").wantPhase(v1alpha1.SessionCompleted, "")
	s.updateSpec(requestNextRun).startAttempt().startRunner().wantPhase(v1alpha1.SessionRunning, "")
	s.wantTotalCost("4")
	s.wantCondition(v1alpha1.ConditionRunnerReporting, metav1.ConditionUnknown, v1alpha1.ReasonCostUnknown)
	s.writeCost("fix-r1-a1=9").wantPhase(v1alpha1.SessionRunning, "")
	s.wantTotalCost("4")
	s.reportCost("5.5").wantPhase(v1alpha1.SessionRunning, "")
	s.wantTotalCost("9.5")
	s.wantCondition(v1alpha1.ConditionRunnerReporting, metav1.ConditionTrue, v1alpha1.ReasonReporting)
}

func TestHostileCostReportsAreRefusedAndChangeNothing(t *testing.T) {
	for _, report := range []string{
		"fix-r1-a1=-1", "fix-r1-a1=NaN", "fix-r1-a1=Inf", "fix-r1-a1=+1", "fix-r1-a1=1e3", "fix-r1-a1=0x10", "fix-r1-a1=1,5", "fix-r1-a1=",
		"fix-r1-a1=1000000001", "fix-r1-a1=99999999999", "fix-r1-a1= 1", "fix-r1-a1=1\n", "fix-r1-a1", "=5", "5", "{}", "\x00", strings.Repeat("9", 300000),
		"fix-r1-a1=0." + strings.Repeat("0", 200), "fix-r1-a1=.5", "fix-r1-a1=5.", "fix-r1-a1=1=2",
	} {
		s := newReportingScenario(t, withMaxCost("10")).reportCost("4")
		s.wantPhase(v1alpha1.SessionRunning, "")
		s.writeCost(report).wantPhase(v1alpha1.SessionRunning, "")
		s.wantTotalCost("4")
		s.wantCondition(v1alpha1.ConditionRunnerReporting, metav1.ConditionFalse, v1alpha1.ReasonCostMalformed)
		s.reportCost("5").advanceClock(CostRecordInterval).wantPhase(v1alpha1.SessionRunning, "")
		s.wantTotalCost("5")
		s.wantCondition(v1alpha1.ConditionRunnerReporting, metav1.ConditionTrue, v1alpha1.ReasonReporting)
	}
}

func TestDecreasingCostReportRefundsNothing(t *testing.T) {
	s := newReportingScenario(t, withMaxCost("10"))
	for _, dollars := range []string{"4", "3", "0", "4"} {
		s.reportCost(dollars).advanceClock(CostRecordInterval).wantPhase(v1alpha1.SessionRunning, "")
		s.wantTotalCost("4")
	}
	s.reportCost("4.5").wantPhase(v1alpha1.SessionRunning, "")
	s.reportCost("7").reportCost("5").advanceClock(CostRecordInterval).wantPhase(v1alpha1.SessionRunning, "")
	s.wantTotalCost("7")     // although it was not recorded before the runner reported less
	s.Activity = &Activity{} // the operator restarted and remembers nothing, and the runner reports less
	s.reportCost("1").advanceClock(CostRecordInterval).wantPhase(v1alpha1.SessionRunning, "")
	s.wantTotalCost("7")
}

func TestUnknownCostIsReportedAndNotTakenForZero(t *testing.T) {
	s := newReportingScenario(t, withMaxCost("10"))
	s.wantCondition(v1alpha1.ConditionRunnerReporting, metav1.ConditionUnknown, v1alpha1.ReasonCostUnknown)
	s.advanceClock(time.Hour).exitRunner(0, "").wantPhase(v1alpha1.SessionCompleted, "")
	s.wantCondition(v1alpha1.ConditionRunnerReporting, metav1.ConditionUnknown, v1alpha1.ReasonCostUnknown)
	require.True(t, s.Session.Status.TotalCostUSD == nil && s.Session.Status.Attempts[0].CostUSD == nil, "an unknown cost is recorded")
	withoutLease := newScenario(t, withMaxCost("10")).startAttempt().startRunner()
	withoutLease.wantPhase(v1alpha1.SessionRunning, "")
	withoutLease.wantCondition(v1alpha1.ConditionRunnerReporting, metav1.ConditionUnknown, v1alpha1.ReasonCostUnknown)
	withoutLease.exitRunner(0, `{"costUSD": 0}`).wantPhase(v1alpha1.SessionCompleted, "")
	withoutLease.wantCondition(v1alpha1.ConditionRunnerReporting, metav1.ConditionTrue, v1alpha1.ReasonReporting)
	withoutLease.wantTotalCost("0")
}

func TestCostBelowTheLimitIsRecordedAtMostOnceAMinute(t *testing.T) {
	s := newReportingScenario(t, withMaxCost("100"))
	writes := 0
	for i := range 600 {
		before := s.Session
		decision := s.advanceClock(time.Second).reportCost(fmt.Sprintf("%d.%02d", i/100, i%100)).decideAndRecord()
		if decision.ChangesStatus(before) {
			writes++
		}
		isRecorded := *decision.Status.Attempt.CostUSD == s.Activity.Cost.USD
		require.True(t, isRecorded || decision.RequeueAfter > 0, "nothing records the cost later")
	}
	require.True(t, writes >= 9 && writes <= 11, "%d writes in 10 minutes", writes)
}

func TestTheOutcomeOfARunnerThatEndedBeforeItWasStoppedForItsCostCounts(t *testing.T) {
	s := newReportingScenario(t, withMaxCost("1")).reportCost("2")
	s.exitRunner(0, "").wantPhase(v1alpha1.SessionCompleted, "")
	s.wantTotalCost("2")
}

// costRun is a session whose runner reports random costs.
type costRun struct {
	*scenario

	rng   *rand.Rand
	limit int64
}

// Runners report anything, at any time, and the operator restarts. The bound is exact: no attempt starts at the limit, and an
// attempt is stopped as soon as a report reaches it. So the total exceeds the limit by at most what the last report added.
func TestFuzzedCostNeverExceedsTheLimitByMoreThanTheLastReport(t *testing.T) {
	exceeded := 0
	for seed := range uint64(300) {
		r := &costRun{rng: rand.New(rand.NewPCG(seed, 1)), limit: 1_000_000}
		r.scenario = newScenario(t, withRetryLimit(5), withMaxCost("1"), func(spec *v1alpha1.AgenticSessionSpec) { spec.Limits.Timeout = seconds(0) })
		r.Runner.Spec.ActivityLease = true
		for range 80 {
			r.step()
		}
		if microsOf(r.Session.Status.TotalCostUSD) >= r.limit {
			exceeded++
		}
		require.True(t, !t.Failed(), "seed %d", seed)
	}
	require.True(t, exceeded >= 100, "only %d of 300 sessions reached the limit", exceeded)
}

func (r *costRun) step() {
	before := r.Session.Status.DeepCopy()
	if r.Session.Status.Attempt.JobName != "" && len(r.Jobs) > 0 {
		r.disturb()
	}
	decision := r.advanceClock(time.Duration(r.rng.IntN(90)) * time.Second).decideAndRecord()
	after := &r.Session.Status
	total, last := microsOf(after.TotalCostUSD), microsOf(before.TotalCostUSD)
	switch {
	case total < last:
		r.t.Errorf("the total decreased from %d to %d", last, total)
	case decision.CreateJob != nil && total >= r.limit:
		r.t.Errorf("an attempt starts at a cost of %d", total)
	case total >= r.limit && after.Attempt.JobName != "" && after.Attempt.StopTime == nil:
		r.t.Errorf("the runner is not stopped at a cost of %d", total)
	case total > last && last >= r.limit && before.Attempt.StopTime == nil:
		r.t.Errorf("a report counts after the limit: from %d to %d", last, total)
	}
	if decision.CreateJob != nil {
		r.createPlannedJob(decision)
		r.startRunner()
	}
	if after.Attempt.JobName == "" && r.rng.IntN(4) == 0 {
		r.updateSpec(requestNextRun)
	}
}

// disturb reports a cost, ends the runner, or restarts the operator.
func (r *costRun) disturb() {
	switch action := r.rng.IntN(10); {
	case r.Session.Status.Attempt.StopTime != nil && action < 5:
		r.removeJobAndPod()
	case action < 6:
		r.reportCost(r.randomCost())
	case action < 7:
		r.writeCost(r.randomCost())
	case action < 8:
		r.Activity = &Activity{Cost: CostReport{}.Next(r.Session.Status.Attempt.JobName + "=" + r.randomCost())}
	case action < 9 && r.newestJob().Status.Conditions == nil:
		r.exitRunner(int32(r.rng.IntN(2)), fmt.Sprintf(`{"costUSD": %s}`, r.randomCost()))
	}
}

func (r *costRun) randomCost() string {
	if r.rng.IntN(3) == 0 {
		return []string{"-5", "NaN", "1e9", "999999999999", "0", "", "1000000000", "null", "0.0000001"}[r.rng.IntN(9)]
	}
	return string(formatDollars(r.rng.Int64N(400_000)))
}
