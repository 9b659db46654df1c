package agenticsession

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
)

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
