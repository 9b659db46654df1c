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

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/assert"
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
	t        *testing.T
	schedule *v1alpha1.Schedule
	runs     []Run
	refusal  *decision.Refusal
	events   []string
	deleted  []string
	// started are the times of the runs that were created, as hh:mm of their day.
	started []string
}

func newScenario(t *testing.T, changes ...func(*v1alpha1.Schedule)) *scenario {
	return &scenario{t: t, schedule: newSchedule(changes...)}
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
	s.schedule.Status = *decision.Status.DeepCopy()
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

// finish ends all runs.
func (s *scenario) finish(since time.Duration, succeeded bool) *scenario {
	for i := range s.runs {
		if run := &s.runs[i]; !run.IsFinished {
			run.IsFinished, run.HasSucceeded, run.CompletionTime = true, succeeded, created.Add(since)
			if !succeeded {
				run.Failure = "StepFailed"
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
	require.True(s.t, s.schedule.Status.Missed == count && got == reason,
		"%d times are missed, the last because of %q, want %d because of %q", s.schedule.Status.Missed, got, count, reason)
	return s
}

func (s *scenario) wantReady(status metav1.ConditionStatus, reason, message string) *scenario {
	s.t.Helper()
	ready := meta.FindStatusCondition(s.schedule.Status.Conditions, v1alpha1.ConditionReady)
	require.True(s.t, ready != nil && ready.Status == status && ready.Reason == reason && strings.Contains(ready.Message, message),
		"Ready is %+v, want %s because of %s with %q", ready, status, reason, message)
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
	if next := s.schedule.Status.NextScheduleTime; next == nil || !next.Equal(apiTime(created.Add(time.Hour))) {
		t.Errorf("next is %v", next)
	}
	s.at(time.Hour - time.Second).wantStarted()
	s.at(time.Hour).wantStarted("13:00").wantReady(metav1.ConditionTrue, v1alpha1.ReasonScheduled, "next at 2026-05-04T14:00:00Z")
	want := "nightly-29631660"
	require.True(t, s.runs[0].Name == want, "the run is named %s, want %s", s.runs[0].Name, want)
	if status := s.schedule.Status; status.Active != 1 || status.ActiveRuns[0].Name != s.runs[0].Name || !status.LastScheduleTime.Equal(apiTime(created.Add(time.Hour))) {
		t.Errorf("status: %+v", status)
	}
	s.at(time.Hour + time.Minute).wantStarted("13:00")
	s.wantEvent("RunCreated: Created SequentialJob nightly-29631660")
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
		require.True(t, s.schedule.Status.Missed == 60*24*60-1 && len(s.started) == 1,
			"%s: %d missed, %d started", policy, s.schedule.Status.Missed, len(s.started))
	}
}

func TestForbidWithADeadlineMissesTimes(t *testing.T) {
	s := newScenario(t, concurrency(v1alpha1.ConcurrencyForbid), deadline(60)).at(time.Second).at(time.Hour)
	s.at(2*time.Hour).wantMissed(0, "")
	s.at(2*time.Hour+2*time.Minute).wantMissed(1, v1alpha1.MissedTooLate).wantEvent("Missed the time 2026-05-04T14:00:00Z: too late to start")
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
	require.True(t, s.schedule.Status.NextScheduleTime == nil, "a suspended Schedule has a next time")
	s.schedule.Spec.Suspend = false
	s.at(5*time.Hour+time.Minute).wantStarted().wantMissed(5, v1alpha1.MissedSuspended)
	s.at(6 * time.Hour).wantStarted("18:00")

	s = newScenario(t).at(time.Second).suspend(true).at(30 * time.Minute)
	s.suspend(false).at(5*time.Hour).wantStarted().wantMissed(5, v1alpha1.MissedSuspended) // resumed while the operator is away
}

func TestTimesOfTheFormerScheduleThatAreDueStillRunUnlessTheyWait(t *testing.T) {
	s := newScenario(t).at(time.Second)
	s.schedule.Spec.Schedule = "30 * * * *"
	s.at(65*time.Minute).wantStarted("13:00").at(90*time.Minute).wantStarted("13:00", "13:30")

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
		s.at(end-time.Minute).finish(end, hour%2 == 0).at(end)
	}
	var kept []string
	for _, run := range s.runs {
		kept = append(kept, run.ScheduledTime.Format("15:04"))
	}
	assert.Equal(t, "kept runs", []string{"17:00", "19:00", "20:00"}, kept)
	last := meta.FindStatusCondition(s.schedule.Status.Conditions, v1alpha1.ConditionLastRunSucceeded)
	require.True(t, last.Status == metav1.ConditionFalse && strings.Contains(last.Message, "StepFailed"), "LastRunSucceeded is %+v", last)
	got := s.schedule.Status.LastSuccessfulTime
	require.True(t, got.Equal(apiTime(created.Add(7*time.Hour+time.Minute))), "the last success was at %s", got)
	s.wantEvent("RunSucceeded: ").wantEvent("RunFailed: ")
}

func TestHistoryKeepsRunsWhoseLogsAreBeingArchived(t *testing.T) {
	none := int32(0)
	s := newScenario(t, func(s *v1alpha1.Schedule) { s.Spec.SuccessfulRunsHistoryLimit = &none }).at(time.Hour).finish(time.Hour+time.Minute, true)
	s.runs[0].IsArchiving = true
	require.True(t, len(s.at(time.Hour+2*time.Minute).runs) == 1, "the run was deleted while its logs were being archived")
	s.runs[0].IsArchiving = false
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
