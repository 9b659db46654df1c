package schedule

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/kstatustest"
	"github.com/yardmaster/yardmaster/test/require"
)

// created is a Monday.
var created = time.Date(2026, time.May, 4, 12, 0, 0, 0, time.UTC)

// newSchedule returns a Schedule that is due every hour.
func newSchedule(changes ...func(*v1alpha1.Schedule)) *v1alpha1.Schedule {
	s := &v1alpha1.Schedule{}
	s.Name, s.Namespace, s.UID, s.Generation = "nightly", "team", "schedule-uid", 1
	s.CreationTimestamp = metav1.NewTime(created)
	s.Status.ObservedGeneration = -1
	s.Spec.Schedule = "0 * * * *"
	s.Spec.SequentialJob = &v1alpha1.ScheduleTemplate{Spec: runtime.RawExtension{Raw: []byte(`{"containers":[{"name":"load","image":"etl"}]}`)}}
	for _, change := range changes {
		change(s)
	}
	return s
}

// scenario is a Schedule, its runs, and an operator that is never interrupted.
type scenario struct {
	t               *testing.T
	schedule        *v1alpha1.Schedule
	runs            []Run
	refusal         *decision.Refusal
	events, deleted []string
	started         []string // the times of the runs that were created, as hh:mm of their day
	finished        map[string]int64
	wait            time.Duration // until the operator decides again
}

func newScenario(t *testing.T, changes ...func(*v1alpha1.Schedule)) *scenario {
	return &scenario{t: t, schedule: newSchedule(changes...), finished: map[string]int64{}}
}

// at lets the operator observe the Schedule at a time after its creation, until nothing is left to do.
func (s *scenario) at(since time.Duration) *scenario {
	s.t.Helper()
	now := created.Add(since)
	for range 500 {
		decision := Decide(Observation{Schedule: s.schedule, Runs: s.runs, Now: now})
		for decision.Question != "" {
			answers := map[string]*Run{decision.Question: findRun(s.runs, decision.Question)}
			decision = Decide(Observation{Schedule: s.schedule, Runs: s.runs, Now: now, Answers: answers})
		}
		s.store(&decision)
		s.delete(&decision)
		if decision.CreateRun != nil {
			decision = s.create(decision.CreateRun, now)
		}
		if decision.CreateRun == nil && decision.RequeueAfter != time.Millisecond {
			return s
		}
	}
	s.t.Fatal("the operator does not come to rest")
	return s
}

func (s *scenario) store(decision *Decision) {
	s.schedule.Status, s.wait = *decision.Status.DeepCopy(), decision.RequeueAfter
	for result, count := range decision.Finished {
		s.finished[result] += count
	}
	for _, event := range decision.Events {
		s.events = append(s.events, event.Reason+": "+event.Message)
	}
}

func (s *scenario) create(pending *v1alpha1.ScheduledRun, now time.Time) Decision {
	observation := Observation{Schedule: s.schedule, Runs: s.runs, Now: now, Refusal: s.refusal}
	if s.refusal == nil {
		run := Run{Name: pending.Name, UID: types.UID(pending.Name), ScheduledTime: pending.ScheduledTime.Time, RerunID: pending.RerunID, CreationTime: now}
		s.runs = append(s.runs, run)
		s.started = append(s.started, pending.ScheduledTime.Format("15:04"))
		observation.Runs = s.runs
	}
	decision := Decide(observation)
	s.store(&decision)
	return decision
}

func (s *scenario) delete(decision *Decision) {
	for _, run := range decision.DeleteRuns {
		s.deleted = append(s.deleted, run.Name)
		require.True(s.t, run.IsFinished || s.schedule.Spec.ConcurrencyPolicy == v1alpha1.ConcurrencyReplace, "the active run %s is deleted", run.Name)
		found := findRun(s.runs, run.Name)
		if run.IsFinished {
			s.remove(run.Name)
		} else {
			found.IsDeleted = true
		}
	}
}

func findRun(runs []Run, name string) *Run {
	for i := range runs {
		if runs[i].Name == name {
			return &runs[i]
		}
	}
	return nil
}

func (s *scenario) remove(name string) {
	s.runs = slices.DeleteFunc(slices.Clone(s.runs), func(run Run) bool { return run.Name == name })
}

func (s *scenario) finish(since time.Duration, succeeded bool) *scenario {
	for i := range s.runs {
		if run := &s.runs[i]; !run.IsFinished {
			run.IsFinished, run.HasSucceeded, run.CompletionTime = true, succeeded, created.Add(since)
			if !succeeded {
				run.Failure = causeOf([]metav1.Condition{{Type: v1alpha1.ConditionReady, Reason: "StepFailed", Message: "step load failed"}}, "")
			}
		}
	}
	return s
}

func (s *scenario) wantStarted(want ...string) *scenario {
	s.t.Helper()
	assert.Equal(s.t, "times that started", want, s.started)
	assert.Equal(s.t, "status.runs", int64(len(want)), s.schedule.Status.Runs)
	return s
}

func (s *scenario) wantMissed(count int64, reason string) *scenario {
	s.t.Helper()
	got := ""
	if last := s.schedule.Status.LastMissed; last != nil {
		got = last.Reason
	}
	require.True(s.t, s.schedule.Status.Missed == count && got == reason, "%d missed because of %q", s.schedule.Status.Missed, got)
	return s
}

func (s *scenario) wantReady(status metav1.ConditionStatus, reason, message string) *scenario {
	s.t.Helper()
	ready := meta.FindStatusCondition(s.schedule.Status.Conditions, v1alpha1.ConditionReady)
	require.True(s.t, ready != nil && ready.Status == status && ready.Reason == reason && strings.Contains(ready.Message, message), "%+v", ready)
	return s
}

func (s *scenario) wantEvent(want string) *scenario {
	s.t.Helper()
	require.Contains(s.t, strings.Join(s.events, "\n"), want)
	return s
}

func concurrency(policy v1alpha1.ScheduleConcurrency) func(*v1alpha1.Schedule) {
	return func(s *v1alpha1.Schedule) { s.Spec.ConcurrencyPolicy = policy }
}

func catchUp(policy v1alpha1.ScheduleCatchUp) func(*v1alpha1.Schedule) {
	return func(s *v1alpha1.Schedule) { s.Spec.CatchUp = policy }
}

func everyMinute(s *v1alpha1.Schedule) { s.Spec.Schedule = "* * * * *" }

func deadline(seconds int64) func(*v1alpha1.Schedule) {
	return func(s *v1alpha1.Schedule) { s.Spec.StartingDeadlineSeconds = &seconds }
}

func TestARunStartsAtItsTimeAndIsNamedAfterIt(t *testing.T) {
	s := newScenario(t).at(time.Second).wantStarted()
	next := s.schedule.Status.NextScheduleTime
	require.True(t, next != nil && next.Equal(apiTime(created.Add(time.Hour))), "next is %v", next)
	s.at(time.Hour - time.Second).wantStarted()
	assert.Equal(t, "wait", time.Second, s.wait)
	s.at(time.Hour).wantStarted("13:00").wantReady(metav1.ConditionTrue, v1alpha1.ReasonScheduled, "next at 2026-05-04T14:00:00Z")
	want := "nightly-29631660"
	require.True(t, s.runs[0].Name == want, "the run is named %s, want %s", s.runs[0].Name, want)
	status, due := s.schedule.Status, apiTime(created.Add(time.Hour))
	assert.Equal(t, "active runs", []v1alpha1.ScheduledRun{{Name: want, ScheduledTime: due}}, status.ActiveRuns)
	require.True(t, status.Active == 1 && status.LastScheduleTime.Equal(due), "status: %+v", status)
	s.at(time.Hour + time.Minute).wantStarted("13:00")
	s.at(2*time.Hour + 10*time.Second).at(3*time.Hour + 11*time.Second).wantEvent("RunCreated: Created SequentialJob nightly-29631660\n" +
		"RunCreated: Created SequentialJob nightly-29631720\nRunCreated: Created SequentialJob nightly-29631780, 11s late")
}

func TestCatchUpDefinesWhichTimesRunAfterTheOperatorWasAway(t *testing.T) {
	for title, test := range map[string]struct {
		changes []func(*v1alpha1.Schedule)
		away    time.Duration
		started []string
		missed  int64
		reason  string
	}{
		"Latest runs the last one":                      {nil, 5*time.Hour + 10*time.Minute, []string{"17:00"}, 4, v1alpha1.MissedSuperseded},
		"Latest within the deadline":                    {[]func(*v1alpha1.Schedule){deadline(900)}, 5*time.Hour + 10*time.Minute, []string{"17:00"}, 4, v1alpha1.MissedTooLate},
		"Latest after the deadline":                     {[]func(*v1alpha1.Schedule){deadline(300)}, 5*time.Hour + 10*time.Minute, nil, 5, v1alpha1.MissedTooLate},
		"None runs none that is late":                   {[]func(*v1alpha1.Schedule){catchUp(v1alpha1.CatchUpNone)}, 5*time.Hour + 10*time.Minute, nil, 5, v1alpha1.MissedTooLate},
		"None runs one that is less than a minute late": {[]func(*v1alpha1.Schedule){catchUp(v1alpha1.CatchUpNone)}, 5*time.Hour + 40*time.Second, []string{"17:00"}, 4, v1alpha1.MissedTooLate},
		"None with a shorter deadline":                  {[]func(*v1alpha1.Schedule){catchUp(v1alpha1.CatchUpNone), deadline(30)}, 5*time.Hour + 40*time.Second, nil, 5, v1alpha1.MissedTooLate},
		"All runs all, in order":                        {[]func(*v1alpha1.Schedule){catchUp(v1alpha1.CatchUpAll)}, 3*time.Hour + 10*time.Minute, []string{"13:00", "14:00", "15:00"}, 0, ""},
		"All within the deadline":                       {[]func(*v1alpha1.Schedule){catchUp(v1alpha1.CatchUpAll), deadline(5400)}, 3*time.Hour + 10*time.Minute, []string{"14:00", "15:00"}, 1, v1alpha1.MissedTooLate},
	} {
		t.Run(title, func(t *testing.T) {
			newScenario(t, test.changes...).at(time.Second).at(test.away).wantStarted(test.started...).wantMissed(test.missed, test.reason)
		})
	}
}

func TestAllRunsAtMostTheLastHundred(t *testing.T) {
	s := newScenario(t, catchUp(v1alpha1.CatchUpAll), everyMinute).at(time.Second).at(500 * time.Minute)
	s.wantMissed(400, v1alpha1.MissedSuperseded)
	require.True(t, len(s.started) == 100 && s.started[0] == "18:41" && s.started[99] == "20:20", "%d runs: %v", len(s.started), s.started)
}

func TestMonthsAwayAreCountedInSeveralDecisions(t *testing.T) {
	for _, policy := range []v1alpha1.ScheduleCatchUp{v1alpha1.CatchUpNone, v1alpha1.CatchUpLatest} {
		s := newScenario(t, catchUp(policy), everyMinute).at(time.Second).at(60 * 24 * time.Hour)
		require.True(t, s.schedule.Status.Missed == 60*24*60-1 && len(s.started) == 1, "%s: %+v", policy, s.schedule.Status)
	}
}

func TestForbidWithADeadlineMissesTimes(t *testing.T) {
	s := newScenario(t, concurrency(v1alpha1.ConcurrencyForbid), deadline(60)).at(time.Second).at(time.Hour)
	s.at(2*time.Hour+10*time.Second).wantMissed(0, "")
	s.at(2*time.Hour+10*time.Second+s.wait).wantMissed(1, v1alpha1.MissedTooLate).wantEvent("Missed the time 2026-05-04T14:00:00Z: too late to start")
	s.finish(2*time.Hour+3*time.Minute, true).at(2*time.Hour + 3*time.Minute).wantStarted("13:00")
}

func TestReplaceDeletesTheActiveRunAndWaitsUntilItIsGone(t *testing.T) {
	s := newScenario(t, concurrency(v1alpha1.ConcurrencyReplace)).at(time.Second).at(time.Hour).at(2 * time.Hour)
	s.wantStarted("13:00").wantEvent("RunReplaced: Deleting run nightly-29631660")
	s.at(2*time.Hour + time.Second)
	assert.Equal(t, "deleted", []string{"nightly-29631660"}, s.deleted)
	s.remove("nightly-29631660")
	s.at(2*time.Hour+time.Minute).wantStarted("13:00", "14:00")
}

func TestTimesOfASuspensionAreMissedAndDoNotRunAfterwards(t *testing.T) {
	s := newScenario(t).at(time.Second)
	s.schedule.Spec.Suspend = true
	s.at(30*time.Minute).at(5*time.Hour).wantStarted().wantReady(metav1.ConditionTrue, v1alpha1.ReasonSuspended, "")
	require.True(t, s.schedule.Status.NextScheduleTime == nil && s.wait == 0, "a suspended Schedule has a next time, or a decision in %s", s.wait)
	s.schedule.Spec.Suspend = false
	s.at(5*time.Hour+time.Minute).wantStarted().wantMissed(5, v1alpha1.MissedSuspended)
	s.wantReady(metav1.ConditionTrue, v1alpha1.ReasonScheduled, "next at 2026-05-04T18:00:00Z")
	s.at(6 * time.Hour).wantStarted("18:00")
	s = newScenario(t).at(time.Second).suspend(true).at(30 * time.Minute)
	s.suspend(false).at(5*time.Hour).wantStarted().wantMissed(5, v1alpha1.MissedSuspended) // resumed while the operator is away
}

func TestTimesOfTheFormerScheduleThatAreDueStillRunUnlessTheyWait(t *testing.T) {
	s := newScenario(t).at(time.Second)
	s.schedule.Spec.Schedule = "30 * * * *"
	s.at(95*time.Minute).wantStarted("13:00").at(150*time.Minute).wantStarted("13:00", "14:30").wantMissed(0, "")
	s = newScenario(t, concurrency(v1alpha1.ConcurrencyForbid)).at(time.Second).at(time.Hour).at(2 * time.Hour)
	s.schedule.Spec.Schedule = "30 * * * *"
	s.at(2*time.Hour+time.Minute).wantStarted("13:00").wantMissed(1, v1alpha1.MissedScheduleChanged)
	s.wantReady(metav1.ConditionTrue, v1alpha1.ReasonScheduled, "next at 2026-05-04T14:30:00Z")
}

func TestARefusedRunIsMissedAndStalledUntilTheSpecChanges(t *testing.T) {
	s := newScenario(t).at(time.Second)
	s.refusal = &decision.Refusal{Class: decision.Invalid, Message: "spec.containers: Required value"}
	s.at(time.Hour).wantStarted().wantMissed(1, v1alpha1.MissedRefused)
	s.wantReady(metav1.ConditionFalse, v1alpha1.ReasonRunRefused, "spec.containers: Required value").wantEvent("the run was refused: spec.containers: Required value")
	s.schedule.Generation = 2
	s.refusal = nil
	s.at(time.Hour+time.Minute).wantReady(metav1.ConditionTrue, v1alpha1.ReasonScheduled, "")
	s.at(2 * time.Hour).wantStarted("14:00")
}

func TestHistoryKeepsTheLastRunsOfEachResult(t *testing.T) {
	two, one := int32(2), int32(1)
	s := newScenario(t, func(s *v1alpha1.Schedule) {
		s.Spec.SuccessfulRunsHistoryLimit, s.Spec.FailedRunsHistoryLimit = &two, &one
	}).at(time.Second)
	for hour := range 8 {
		end := time.Duration(hour+1)*time.Hour + time.Minute
		s.at(end-time.Minute).finish(end, hour%2 == 0 || hour == 1).at(end)
	}
	var kept []string
	for _, run := range s.runs {
		kept = append(kept, run.ScheduledTime.Format("15:04"))
	}
	assert.Equal(t, "kept runs", []string{"17:00", "19:00", "20:00"}, kept)
	last := meta.FindStatusCondition(s.schedule.Status.Conditions, v1alpha1.ConditionLastRunSucceeded)
	require.True(t, last.Status == metav1.ConditionFalse && strings.Contains(last.Message, "StepFailed: step load failed"), "%+v", last)
	got := s.schedule.Status.LastSuccessfulTime
	require.True(t, got.Equal(apiTime(created.Add(7*time.Hour+time.Minute))), "the last success was at %s", got)
	s.wantEvent("RunSucceeded: ").wantEvent("RunFailed: ")
	assert.Equal(t, "number of runs that ended", map[string]int64{"succeeded": 5, "failed": 3}, s.finished)
}

func TestHistoryKeepsRunsWhoseLogsAreBeingArchived(t *testing.T) {
	none := int32(0)
	s := newScenario(t, func(s *v1alpha1.Schedule) { s.Spec.SuccessfulRunsHistoryLimit = &none }).at(time.Hour)
	sj := &v1alpha1.SequentialJob{}
	sj.Name, sj.Status.Phase, sj.Status.CompletionTime = s.runs[0].Name, v1alpha1.PhaseCompleted, apiTime(created.Add(time.Hour))
	sj.Status.Archive = &v1alpha1.SequenceArchiveStatus{}
	s.runs[0] = RunOfSequentialJob(sj)
	require.True(t, len(s.at(time.Hour+2*time.Minute).runs) == 1, "the run was deleted while its logs were being archived")
	sj.Status.Archive.CompletionTime = sj.Status.CompletionTime
	s.runs[0] = RunOfSequentialJob(sj)
	require.True(t, len(s.at(time.Hour+3*time.Minute).runs) == 0, "the run was not deleted after that")
}

func TestTimesRemainDueWhileTheirKindIsDisabled(t *testing.T) {
	s := newScenario(t).at(time.Second)
	decision := Decide(Observation{Schedule: s.schedule, KindDisabled: true, Now: created.Add(time.Hour)})
	s.store(&decision)
	s.wantReady(metav1.ConditionFalse, v1alpha1.ReasonKindDisabled, "without the controller of SequentialJob")
	s.at(time.Hour + time.Minute).wantStarted("13:00")
}

func TestADeletedScheduleStartsNothing(t *testing.T) {
	s := newSchedule(func(s *v1alpha1.Schedule) { s.DeletionTimestamp = apiTime(created) })
	decision := Decide(Observation{Schedule: s, Now: created.Add(time.Hour)})
	require.True(t, !decision.HasActions() && !decision.StatusChanged, "decision: %+v", decision)
}

func TestTheRunOfTheNextTimeIsCreatedBeforeItsTimeIsRecorded(t *testing.T) {
	for title, s := range map[string]*scenario{
		"without a request": newScenario(t).at(0), "after a request": newScenario(t).request("a").at(time.Minute),
	} {
		decision := Decide(Observation{Schedule: s.schedule, Runs: s.runs, Now: created.Add(time.Hour)})
		require.True(t, decision.HasActions() && decision.CreateRun.Name == RunName(s.schedule, created.Add(time.Hour)) && !decision.StatusChanged,
			"%s: decision %+v, want one that creates the run and records nothing", title, decision)
	}
}

// The operator crashed after it created the run of 13:00. Its cache does not have the run yet.
func TestARunThatIsNotRecordedIsCountedWhateverChanged(t *testing.T) {
	for title, change := range map[string]func(s *v1alpha1.Schedule) (since time.Duration){
		"nothing":               func(*v1alpha1.Schedule) time.Duration { return time.Hour },
		"a suspension":          func(s *v1alpha1.Schedule) time.Duration { s.Spec.Suspend = true; return time.Hour },
		"the deadline":          func(s *v1alpha1.Schedule) time.Duration { deadline(60)(s); return 90 * time.Minute },
		"a later time":          func(*v1alpha1.Schedule) time.Duration { return 2 * time.Hour },
		"the schedule":          func(s *v1alpha1.Schedule) time.Duration { s.Spec.Schedule = "30 * * * *"; return time.Hour },
		"the clock as well":     func(s *v1alpha1.Schedule) time.Duration { s.Spec.Schedule = "30 * * * *"; return 50 * time.Minute },
		"the policy for others": func(s *v1alpha1.Schedule) time.Duration { concurrency(v1alpha1.ConcurrencyForbid)(s); return time.Hour },
	} {
		t.Run(title, func(t *testing.T) {
			s := newScenario(t).at(0)
			due := created.Add(time.Hour)
			run := Run{Name: RunName(s.schedule, due), UID: types.UID("run"), ScheduledTime: due, CreationTime: due}
			since := change(s.schedule)
			// Creating the run again finds it. Anything else has to ask whether it exists.
			decision := Decide(Observation{Schedule: s.schedule, Now: created.Add(since)})
			if creates := decision.CreateRun != nil && decision.CreateRun.Name == run.Name && !decision.StatusChanged; creates {
				s.runs = append(s.runs, run)
				decision = Decide(Observation{Schedule: s.schedule, Runs: s.runs, Now: created.Add(since)})
			} else if decision.Question != run.Name {
				t.Fatalf("decision %+v, want a question", decision)
			} else {
				decision = Decide(Observation{Schedule: s.schedule, Now: created.Add(since), Answers: map[string]*Run{run.Name: &run}})
			}
			require.True(t, decision.Status.Runs == 1 && decision.Status.Missed == 0 && decision.Started != nil, "%+v", decision.Status)
		})
	}
}

func stopAfter(failures int32) func(*v1alpha1.Schedule) {
	return func(s *v1alpha1.Schedule) { s.Spec.SuspendAfterFailures = &failures }
}

// failing returns a Schedule whose first two runs failed, and that has missed a time since.
func failing(t *testing.T) *scenario {
	s := newScenario(t, stopAfter(2)).at(time.Second)
	s.at(time.Hour).finish(3*time.Hour, false).at(2*time.Hour).finish(3*time.Hour, false).at(2*time.Hour + time.Minute)
	return s.wantReady(metav1.ConditionFalse, v1alpha1.ReasonTooManyFailures, "2 runs in a row failed").at(3 * time.Hour)
}

func (s *scenario) suspend(suspended bool) *scenario {
	s.schedule.Spec.Suspend = suspended
	return s
}

func TestNoTimeStartsAfterTooManyFailuresUntil(t *testing.T) {
	const soon, later = 3*time.Hour + time.Minute, 3*time.Hour + 2*time.Minute
	for title, test := range map[string]struct {
		act     func(s *scenario)
		started int // the number of runs after the time that follows
	}{
		"nobody acts":           {func(*scenario) {}, 2},
		"a triggered run fails": {func(s *scenario) { s.request("1").at(soon).finish(3*time.Hour, false).at(later) }, 3},
		"a backfill is waiting": {func(s *scenario) { s.request("1", 1, 2).at(soon) }, 2},
		"the template changes":  {func(s *scenario) { s.schedule.Generation++; s.at(soon) }, 2},
		"a triggered run works": {func(s *scenario) { s.request("1").at(soon).finish(3*time.Hour, true).at(later) }, 4},
		"it is resumed":         {func(s *scenario) { s.suspend(true).at(soon).suspend(false).at(later) }, 3},
		"the limit is higher":   {func(s *scenario) { *s.schedule.Spec.SuspendAfterFailures = 3; s.at(soon) }, 3},
		"the limit is removed":  {func(s *scenario) { s.schedule.Spec.SuspendAfterFailures = nil; s.at(soon) }, 3},
	} {
		t.Run(title, func(t *testing.T) {
			s := failing(t)
			test.act(s)
			s.at(4 * time.Hour)
			assert.Equal(t, "number of runs that started", test.started, len(s.started))
			resumed := s.schedule.Status.Missed > 0
			require.True(t, !resumed || s.schedule.Status.LastMissed.Reason == v1alpha1.MissedSuspended, "missed %+v", s.schedule.Status.LastMissed)
		})
	}
}

func TestASuccessEndsTheCountOfFailures(t *testing.T) {
	s := newScenario(t, stopAfter(2)).at(time.Second)
	for hour, succeeds := range []bool{false, true, false, true, false} {
		s.at(time.Duration(hour+1)*time.Hour).finish(time.Duration(hour+1)*time.Hour, succeeds)
	}
	s.at(6*time.Hour).wantReady(metav1.ConditionTrue, v1alpha1.ReasonScheduled, "")
	assert.Equal(t, "status.failures, only that of the last run", int32(1), s.schedule.Status.Failures)
}

// A run may end before the operator observes that it exists, and may be deleted by the history limits right after it was counted.
func TestARunThatEndsAtOnceCountsOnce(t *testing.T) {
	s := newScenario(t, stopAfter(10), func(s *v1alpha1.Schedule) { s.Spec.FailedRunsHistoryLimit = new(int32(0)) }).at(time.Second)
	for hour := range 3 {
		now := created.Add(time.Duration(hour+1) * time.Hour)
		run := Decide(Observation{Schedule: s.schedule, Runs: s.runs, Now: now}).CreateRun
		s.runs = append(s.runs, Run{Name: run.Name, ScheduledTime: run.ScheduledTime.Time, CreationTime: now, IsFinished: true, CompletionTime: now})
		s.at(now.Sub(created) + time.Second).at(now.Sub(created) + time.Minute)
	}
	got := s.schedule.Status.Failures
	require.True(t, got == 3 && len(s.runs) == 0, "status.failures is %d after 3 failures, and %d runs are kept", got, len(s.runs))
}

func when(expression string) func(*v1alpha1.Schedule) {
	return func(s *v1alpha1.Schedule) { s.Spec.When = expression }
}

// Several times are due at once. The expression selects some of them, and catchUp which of these run.
func TestWhenSelectsTheTimesThatMayRun(t *testing.T) {
	for title, test := range map[string]struct {
		when    string
		catchUp v1alpha1.ScheduleCatchUp
		started []string
		reasons map[string]int64
	}{
		"all, and the last runs":         {"true", "", []string{"18:00"}, map[string]int64{"Superseded": 5}},
		"none":                           {"false", "", nil, map[string]int64{"WhenFalse": 6}},
		"even hours, and the last runs":  {"scheduledTime.getHours() % 2 == 0", "", []string{"18:00"}, map[string]int64{"Superseded": 2, "WhenFalse": 3}},
		"odd hours, and the last runs":   {"scheduledTime.getHours() % 2 == 1", "", []string{"17:00"}, map[string]int64{"Superseded": 2, "WhenFalse": 3}},
		"odd hours, and all run":         {"scheduledTime.getHours() % 2 == 1", v1alpha1.CatchUpAll, []string{"13:00", "15:00", "17:00"}, map[string]int64{"WhenFalse": 3}},
		"in the time zone of the people": {"scheduledTime.getHours('Europe/Berlin') == 17", "", []string{"15:00"}, map[string]int64{"Superseded": 0, "WhenFalse": 5}},
		"no time without a run":          {"runs[0].succeeded", "", nil, map[string]int64{"WhenFailed": 6}},
		"a loop that costs too much":     {"[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, a+b+c+d > 0))))", "", nil, map[string]int64{"WhenFailed": 6}},
	} {
		t.Run(title, func(t *testing.T) {
			s := newScenario(t, when(test.when), catchUp(test.catchUp)).at(time.Second).at(6 * time.Hour)
			s.wantStarted(test.started...)
			missed := int64(0)
			for _, count := range test.reasons {
				missed += count
			}
			assert.Equal(t, "number of missed times", missed, s.schedule.Status.Missed)
			for reason, count := range test.reasons {
				found := strings.Contains(strings.Join(s.events, "\n"), missedTexts[reason])
				require.True(t, found == (count > 0), "an event about %s: %t: %q", reason, found, s.events)
			}
			if test.reasons["WhenFailed"] > 0 {
				s.wantReady(metav1.ConditionFalse, v1alpha1.ReasonWhenFailed, "is unknown: when: ")
			} else {
				s.wantReady(metav1.ConditionTrue, v1alpha1.ReasonScheduled, "")
			}
		})
	}
}

func TestWhenSeesTheRunForWhichATimeWaits(t *testing.T) {
	s := newScenario(t, when("runs.size() == 0 || runs[0].succeeded"), concurrency(v1alpha1.ConcurrencyForbid)).at(time.Second).at(time.Hour).at(2 * time.Hour)
	s.wantReady(metav1.ConditionTrue, v1alpha1.ReasonWaitingForRun, "")
	s.finish(2*time.Hour, false).at(2*time.Hour + time.Minute)
	require.True(t, s.schedule.Status.Missed == 1 && s.schedule.Status.LastMissed.Reason == v1alpha1.MissedWhenFalse, "%+v", s.schedule.Status)
}

func TestWhenSeesTheLastTenRunsThatEnded(t *testing.T) {
	s := newScenario(t, when("runs.size() == 10 || runs.size() + active == scheduledTime.getHours() - 13")).at(time.Second)
	s.schedule.Spec.SuccessfulRunsHistoryLimit = new(int32(20))
	for due := time.Hour; due <= 13*time.Hour; due += 2 * time.Hour {
		s.at(due).at(due+time.Hour).finish(due+time.Hour, true)
	}
	s.wantMissed(0, "")
}

func TestReplaceKeepsTheActiveRunOfATimeThatWhenRejects(t *testing.T) {
	s := newScenario(t, when("active == 0"), concurrency(v1alpha1.ConcurrencyReplace)).at(time.Second).at(time.Hour).at(2 * time.Hour)
	require.True(t, len(s.deleted) == 0 && s.schedule.Status.Missed == 1, "deleted %q, missed %d times", s.deleted, s.schedule.Status.Missed)
}

func TestATriggeredRunStartsWhateverWhenSays(t *testing.T) {
	newScenario(t, when("false")).at(time.Second).request("now").at(time.Minute).wantRequest(1, 0, 0)
	newScenario(t, when("scheduledTime.getHours() > 14")).at(6*time.Hour).request("again", 1, 4).at(6*time.Hour+time.Minute).wantRequest(2, 2, 0)
}

func TestAWrongExpressionIsRejected(t *testing.T) {
	for expression, want := range map[string]string{
		"runs[0].hasSucceeded": "undefined field 'hasSucceeded'",
		"scheduledTime":        "must be true or false, but has the type",
		"steps.size() == 0":    "undeclared reference to 'steps'",
		"runs.size() == ":      "column",
		"runs[0] == 'failed'":  "no matching overload",
	} {
		s := newScenario(t, when(expression)).at(time.Second)
		s.wantReady(metav1.ConditionFalse, v1alpha1.ReasonScheduleInvalid, want)
		errs := Validate(s.schedule)
		require.True(t, len(errs) == 1 && strings.Contains(errs[0].Error(), want), "%s: %v, want %q", expression, errs, want)
	}
}

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
			events, isReady := strings.Count(strings.Join(s.events, "\n"), v1alpha1.EventRunBlocked), test.ready == metav1.ConditionTrue
			require.True(t, isReady && events == 0 || !isReady && events == 1, "%d events that no run can start", events)
			s.schedule.APIVersion, s.schedule.Kind = v1alpha1.GroupVersion.String(), "Schedule"
			kstatustest.AssertKstatus(t, s.schedule, test.want)
		})
	}
}
