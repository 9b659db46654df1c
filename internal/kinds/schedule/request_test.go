package schedule

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
)

// request sets the request of the spec: from and to are hours after the creation, and the request is a trigger without to.
func (s *scenario) request(id string, hours ...int) *scenario {
	s.schedule.Spec.Rerun = &v1alpha1.ScheduleRerun{Rerun: v1alpha1.Rerun{ID: id}}
	at := func(hours int) *metav1.Time { return apiTime(created.Add(time.Duration(hours) * time.Hour)) }
	if len(hours) > 0 {
		s.schedule.Spec.Rerun.From = at(hours[0])
	}
	if len(hours) > 1 {
		s.schedule.Spec.Rerun.To = at(hours[1])
	}
	return s
}

func (s *scenario) wantRequest(runs, missed, left int32) *scenario {
	s.t.Helper()
	got := s.schedule.Status.Rerun
	require.True(s.t, got != nil && got.Runs == runs && got.Missed == missed && got.Left == left, "the request is %+v", got)
	return s
}

func TestRequestedRunsFollowTheRulesOfTheSchedule(t *testing.T) {
	type combination struct {
		policy     v1alpha1.ScheduleConcurrency
		isBackfill bool
		state      string
	}
	// rule returns how many times are requested, how many of them start at once, and how many in the end; the others are missed.
	rule := func(c combination) (times, atOnce, inTheEnd int) {
		times = 1
		if c.isBackfill {
			times = 4
		}
		atOnce, inTheEnd = times, times
		if c.policy != v1alpha1.ConcurrencyAllow {
			atOnce = 1
		}
		switch {
		case c.state == "a run is active" && c.policy != v1alpha1.ConcurrencyAllow, strings.HasSuffix(c.state, "a quota is exhausted"):
			atOnce = 0 // with Replace, when the active run is gone
		case c.state == "suspended" && c.isBackfill:
			atOnce = 0
		case c.state == "refused":
			atOnce, inTheEnd = 0, 0
		}
		return times, atOnce, inTheEnd
	}
	for _, policy := range []v1alpha1.ScheduleConcurrency{v1alpha1.ConcurrencyAllow, v1alpha1.ConcurrencyForbid, v1alpha1.ConcurrencyReplace} {
		for _, isBackfill := range []bool{false, true} {
			for _, state := range []string{
				"idle", "a run is active", "suspended", "a quota is exhausted", "suspended while a quota is exhausted", "refused",
			} {
				c := combination{policy, isBackfill, state}
				t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
					s := newScenario(t, concurrency(policy), catchUp(v1alpha1.CatchUpAll)).at(time.Second).at(time.Hour)
					if state != "a run is active" {
						s.finish(time.Hour, true).at(time.Hour)
					}
					s.request("again", -10)
					if isBackfill {
						s.request("again", -10, -7)
					}
					s.schedule.Spec.Suspend = state == "suspended"
					switch state {
					case "a quota is exhausted", "suspended while a quota is exhausted":
						s.refusal = &decision.Refusal{Class: decision.QuotaExceeded, Message: "exceeded quota"}
					case "refused":
						s.refusal = &decision.Refusal{Class: decision.Invalid, Message: "spec.containers: Required value"}
					}
					times, atOnce, inTheEnd := rule(c)
					before, now := len(s.started), time.Hour+time.Second
					s.at(now)
					got := len(s.started) - before
					require.True(t, got == atOnce, "%d times start at once, want %d: %v", got, atOnce, s.started)
					replaces := state == "a run is active" && policy == v1alpha1.ConcurrencyReplace && !isBackfill
					require.True(t, (len(s.deleted) > 0) == replaces, "the active run is replaced by %+v: %q", c, s.deleted)
					if state == "suspended while a quota is exhausted" {
						s.suspend(true).at(now)
					}
					if state != "refused" {
						s.refusal, s.schedule.Spec.Suspend = nil, false
					}
					for range 10 { // until an hour has passed, no time of the timetable is due
						now += time.Minute
						for _, name := range s.deleted {
							s.remove(name)
						}
						s.finish(now, true).at(now)
						active := s.schedule.Status.Active
						require.True(t, active <= 1 || policy == v1alpha1.ConcurrencyAllow, "%d runs are active", active)
					}
					assert.Equal(t, "number of times that started in the end", inTheEnd, len(s.started)-before)
					s.wantRequest(int32(inTheEnd), int32(times-inTheEnd), 0)
					if state == "refused" {
						s.wantReady(metav1.ConditionFalse, v1alpha1.ReasonRunRefused, "spec.containers")
					}
				})
			}
		}
	}
}

func TestARequestRunsOnceUntilItHasAnotherID(t *testing.T) {
	s := newScenario(t).at(time.Second).request("a").at(10*time.Minute).wantStarted("12:10").wantRequest(1, 0, 0)
	s.at(11 * time.Minute).at(20 * time.Minute).wantStarted("12:10")
	s.request("b").at(21*time.Minute).wantStarted("12:10", "12:21").request("a").at(22*time.Minute).wantStarted("12:10", "12:21", "12:22")
	names := map[string]bool{}
	for _, run := range s.runs {
		names[run.Name] = true
		assert.Equal(t, "length of the name "+run.Name, len("nightly-")+10, len(run.Name))
	}
	assert.Equal(t, "number of names", 3, len(names))
}

func TestARequestedTimeThatHasNotComeWaits(t *testing.T) {
	s := newScenario(t, func(s *v1alpha1.Schedule) { s.Spec.Schedule = "30 23 * * *" }).at(time.Second).request("later", 5).at(time.Hour).wantStarted().wantRequest(0, 0, 1)
	s.wantReady(metav1.ConditionTrue, v1alpha1.ReasonScheduled, "1 times of request later have not started")
	s.at(5 * time.Hour).wantStarted("17:00")
}

func TestWithdrawnTimesAreMissed(t *testing.T) {
	for title, change := range map[string]struct {
		change func(*scenario)
		reason string
	}{
		"the request is removed":   {func(s *scenario) { s.schedule.Spec.Rerun = nil }, v1alpha1.MissedCanceled},
		"the schedule has changed": {func(s *scenario) { s.schedule.Spec.Schedule = "30 * * * *" }, v1alpha1.MissedScheduleChanged},
		"its time zone has other times since": {
			func(s *scenario) { s.schedule.Status.Rerun.LastTime = &s.schedule.Status.Rerun.To }, v1alpha1.MissedScheduleChanged,
		},
	} {
		t.Run(title, func(t *testing.T) {
			s := newScenario(t, concurrency(v1alpha1.ConcurrencyForbid)).at(time.Second).request("b", -10, -7).at(time.Minute)
			s.wantStarted("02:00").wantRequest(1, 0, 3)
			change.change(s)
			s.at(2*time.Minute).finish(3*time.Minute, true).at(4*time.Minute).wantStarted("02:00").wantRequest(1, 3, 0).wantMissed(3, change.reason)
		})
	}
	s := newScenario(t, concurrency(v1alpha1.ConcurrencyForbid)).at(time.Second).request("b", -10, -7).at(time.Minute).request("c").at(2 * time.Minute)
	s.wantMissed(3, v1alpha1.MissedCanceled).wantRequest(0, 0, 1).finish(3*time.Minute, true).at(3*time.Minute).wantStarted("02:00", "12:02")
}

func TestATriggerHasTheDeadlineOfTheScheduleAndABackfillHasNone(t *testing.T) {
	for times, hours := range map[int32][]int{1: {-10}, 4: {-10, -7}} {
		s := newScenario(t, concurrency(v1alpha1.ConcurrencyForbid), deadline(60)).at(time.Second).at(time.Hour).request("late", hours...)
		s.at(time.Hour+10*time.Second).at(time.Hour+30*time.Second).wantStarted("13:00").wantRequest(0, 0, times)
		s.at(time.Hour + 30*time.Second + s.wait)
		if times > 1 {
			s.wantRequest(0, 0, times)
		} else {
			s.wantRequest(0, 1, 0).wantMissed(1, v1alpha1.MissedTooLate)
		}
	}
}

func TestATriggerStartsBeforeTimesThatWaitAndABackfillAfterThem(t *testing.T) {
	trigger := newScenario(t, concurrency(v1alpha1.ConcurrencyForbid)).at(time.Second).at(time.Hour).at(2*time.Hour).request("a", -10).at(2*time.Hour + time.Minute)
	trigger.finish(2*time.Hour+2*time.Minute, true).at(2*time.Hour+2*time.Minute).wantStarted("13:00", "02:00")
	trigger.finish(2*time.Hour+3*time.Minute, true).at(2*time.Hour+3*time.Minute).wantStarted("13:00", "02:00", "14:00")
	next := newScenario(t, concurrency(v1alpha1.ConcurrencyForbid)).at(time.Second).at(time.Hour).request("a", -10).at(time.Hour + time.Minute)
	next.finish(2*time.Hour, true).at(2*time.Hour).wantStarted("13:00", "02:00")
	backfill := newScenario(t, concurrency(v1alpha1.ConcurrencyForbid)).at(time.Second).at(time.Hour).at(2*time.Hour).request("a", -10, -9).at(2*time.Hour + time.Minute)
	backfill.finish(2*time.Hour+2*time.Minute, true).at(2*time.Hour+2*time.Minute).wantStarted("13:00", "14:00")
	backfill.finish(2*time.Hour+3*time.Minute, true).at(2*time.Hour+3*time.Minute).wantStarted("13:00", "14:00", "02:00")
}

func TestABackfillIsBounded(t *testing.T) {
	s := newScenario(t, everyMinute).at(time.Second).request("all", -24*365, 0).at(30 * time.Second)
	assert.Equal(t, "runs that are active at the same time", maxActiveBackfill, len(s.started))
	s.wantRequest(maxActiveBackfill, 0, MaxBackfill-maxActiveBackfill)
	want := apiTime(created.AddDate(-1, 0, 0).Add((MaxBackfill - 1) * time.Minute))
	require.True(t, s.schedule.Status.Rerun.To.Equal(want), "the backfill ends at %s, want %s", s.schedule.Status.Rerun.To, want)
	none := newScenario(t, func(s *v1alpha1.Schedule) { s.Spec.Schedule = "0 0 29 2 *" }).at(time.Second).request("none", -24, -20).at(time.Minute)
	none.wantStarted().wantRequest(0, 0, 0)
}

// The clock was set back after the run of 13:00 was created, which the cache does not have yet.
func TestARequestDoesNotStartBesideARunThatIsNotRecorded(t *testing.T) {
	s := newScenario(t, concurrency(v1alpha1.ConcurrencyForbid)).at(0).request("again")
	name := RunName(s.schedule, created.Add(time.Hour))
	decision := Decide(Observation{Schedule: s.schedule, Now: created.Add(50 * time.Minute)})
	require.True(t, decision.Question == name, "decision %+v, want a question about %s", decision, name)
}

func TestAPendingRunWhoseRequestIsUnknownIsCounted(t *testing.T) {
	s := newScenario(t).at(time.Second)
	s.schedule.Status.Pending = &v1alpha1.ScheduledRun{Name: "nightly-0123456789", ScheduledTime: apiTime(created), RerunID: "lost"}
	s.at(time.Minute).wantRequest(0, 1, 0).wantMissed(1, v1alpha1.MissedCanceled)
}

func TestAFailedRequestedRunIsTheLastRunUntilTheNext(t *testing.T) {
	s := newScenario(t).at(time.Second).at(time.Hour).finish(time.Hour+time.Minute, true).request("again", -10).at(time.Hour + 2*time.Minute)
	s.finish(time.Hour+3*time.Minute, false).at(time.Hour + 3*time.Minute)
	last := decision.FindReason(s.schedule.Status.Conditions, v1alpha1.ConditionLastRunSucceeded, v1alpha1.ReasonRunFailed)
	require.True(t, last != nil && strings.Contains(last.Message, "StepFailed"), "conditions %+v", s.schedule.Status.Conditions)
	s.at(2*time.Hour).finish(2*time.Hour+time.Minute, true).at(2*time.Hour + time.Minute)
	last = decision.FindReason(s.schedule.Status.Conditions, v1alpha1.ConditionLastRunSucceeded, v1alpha1.ReasonRunSucceeded)
	require.True(t, last != nil, "conditions %+v", s.schedule.Status.Conditions)
}

func TestNoStageOfADecisionChangesWhatAnEarlierOneDecided(t *testing.T) {
	s := newScenario(t, concurrency(v1alpha1.ConcurrencyReplace)).at(time.Second).at(time.Hour).request("again", -10)
	o := Observation{Schedule: s.schedule, Runs: s.runs, Now: created.Add(2 * time.Hour), Answers: map[string]*Run{RunName(s.schedule, created.Add(2*time.Hour)): nil}}
	f := newFacts(o)
	outcome := decideTimes(f)
	statusBefore, replaced := outcome.status.DeepCopy(), len(outcome.replaced)
	p := planRuns(f, outcome)
	deletions := len(p.deleteRuns)
	newReport(f, outcome, p)
	diff := cmp.Diff(*statusBefore, outcome.status)
	require.True(t, diff == "" && len(outcome.replaced) == replaced && len(p.deleteRuns) == deletions, "a later stage changes the outcome:\n%s", diff)
	diff = cmp.Diff(*s.schedule, *newFacts(o).Schedule)
	require.True(t, diff == "" && len(newFacts(o).Runs) == len(f.Runs), "a later stage changes the facts (-before +after):\n%s", diff)
}
