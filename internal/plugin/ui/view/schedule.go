package view

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/schedule"
)

func scheduleEntry(s *v1alpha1.Schedule) *Entry {
	e := newEntry(Schedules, s)
	e.setReady(s, s.Status.Conditions)
	last := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionLastRunSucceeded)
	if last != nil && last.Status == metav1.ConditionFalse && !e.NeedsAttention {
		e.setProblem(cleanLine(last.Reason), cleanLine(last.Message), last.LastTransitionTime.Time)
		e.OfRun = true
	}
	return e
}

// ScheduleOf returns the Schedule whose run an object is, and the time of the run; nil without one.
func ScheduleOf(e *Entry) (of *Entry, due time.Time) {
	owner := scheduleReference(e)
	if owner == nil {
		return nil, due
	}
	object, _ := e.Object.(metav1.Object)
	if at, err := time.Parse(time.RFC3339, object.GetAnnotations()[v1alpha1.AnnotationScheduledTime]); err == nil {
		due = at
	}
	return &Entry{Kind: Schedules, Namespace: e.Namespace, Name: cleanLine(owner.Name)}, due
}

// scheduleReference returns the reference of a run to its Schedule, or nil.
func scheduleReference(e *Entry) *metav1.OwnerReference {
	object, isObject := e.Object.(metav1.Object)
	if !isObject {
		return nil
	}
	owner := metav1.GetControllerOfNoCopy(object)
	if owner == nil || owner.Kind != Schedules.Name || owner.APIVersion != v1alpha1.GroupVersion.String() {
		return nil
	}
	return owner
}

// Time is a time at which a Schedule starts a run.
type Time struct {
	Due   time.Time
	Local string // in the time zone of the Schedule
}

// Schedule is the page of a Schedule.
type Schedule struct {
	*Entry

	Expression, TimeZone string
	Starts               string // what each run is
	Facts                []Fact
	Next                 []Time
	NextError            string
	Runs                 []Run
	Bars                 []Bar
	LastMissed           string
	LastMissedTime       time.Time
	Conditions           []Condition
	Actions              []Action
}

// scheduleRuns returns the known runs of a Schedule, and the active ones that cannot be read.
func scheduleRuns(s *v1alpha1.Schedule, e *Entry, kind *Kind, state *State) []Run {
	runs := state.Runs(SeriesOf(e))
	for i := range s.Status.ActiveRuns {
		active := &s.Status.ActiveRuns[i]
		if !slices.ContainsFunc(runs, func(run Run) bool { return run.Name == active.Name }) {
			unknown := &Entry{Kind: kind, Namespace: s.Namespace, Name: cleanLine(active.Name), Status: "Active", Level: LevelActive}
			runs = append(runs, Run{Entry: unknown, Due: timeOf(active.ScheduledTime), Request: cleanLine(active.RerunID)})
		}
	}
	return runs[:min(len(runs), maxRuns)]
}

// NewSchedule computes the page of a Schedule, with the runs in a state.
func NewSchedule(e *Entry, s *v1alpha1.Schedule, state *State, now time.Time) *Schedule {
	status := &s.Status
	kind, starts := (*Kind)(nil), Unknown
	switch {
	case s.Spec.SequentialJob != nil:
		kind, starts = Sequences, "a SequentialJob"
	case s.Spec.AgenticSession != nil:
		kind, starts = Sessions, "an AgenticSession"
	case s.Spec.Message != nil:
		starts = "a message of Queue " + cleanLine(s.Spec.Message.QueueRef.Name)
	}
	trigger := newAction(e, "Trigger a run now", "Requests a run, which the operator starts by the rules of the Schedule.", "trigger")
	suspend := newAction(e, "Suspend", "Starts no run but a triggered one. Active runs continue, and times that come meanwhile are missed.", "suspend")
	if s.Spec.Suspend {
		suspend = newAction(e, "Resume", "Resumes at the next time. Times that came meanwhile do not run.", "resume")
	}
	actions := []Action{trigger, suspend}
	if request := status.Rerun; s.Spec.Rerun != nil && request != nil && request.Left > 0 {
		actions = append(actions, newAction(e, "Withdraw the request", "Counts the times of the request that have not started as missed. Active runs continue.", "cancel"))
	}
	v := &Schedule{
		Entry: e, Expression: cleanLine(s.Spec.Schedule), TimeZone: cleanLine(s.Spec.TimeZone), Starts: starts, Conditions: newConditions(status.Conditions),
		Actions: actions,
		Facts: []Fact{
			{Name: "Last time", Value: Unknown, Time: timeOf(status.LastScheduleTime)},
			{Name: "Last success", Value: Unknown, Time: timeOf(status.LastSuccessfulTime)},
			lastResult(status),
			{Name: "Active", Value: number(status.Active)},
			{Name: "Started", Value: strconv.FormatInt(status.Runs, 10)},
			{Name: "Missed", Value: strconv.FormatInt(status.Missed, 10), Level: deadLevel(&status.Missed)},
		},
	}
	if condition := cleanLine(s.Spec.When); condition != "" {
		v.Facts = append(v.Facts, Fact{Name: "When", Value: condition})
	}
	if limit := s.Spec.SuspendAfterFailures; limit != nil {
		v.Facts = append(v.Facts, Fact{Name: "Failures in a row", Value: fmt.Sprintf("%d of %d", status.Failures, *limit)})
	}
	if request := status.Rerun; request != nil {
		v.Facts = append(v.Facts, Fact{Name: "Last request", Value: cleanLine(fmt.Sprintf("%s: %d started, %d missed, %d left", request.ID, request.Runs, request.Missed, request.Left))})
	}
	v.setNextTimes(s, now)
	if kind != nil {
		v.Runs = scheduleRuns(s, e, kind, state)
		v.Bars = NewBars(v.Runs, now)
	}
	if missed := status.LastMissed; missed != nil && missed.Reason != v1alpha1.MissedWhenFalse {
		v.LastMissed, v.LastMissedTime = joinReason(missed.Reason, missed.Message), missed.Time.Time
	}
	return v
}

func lastResult(status *v1alpha1.ScheduleStatus) Fact {
	fact := Fact{Name: "Last result", Value: Unknown}
	if last := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionLastRunSucceeded); last != nil {
		fact.Value, fact.Level = "failed", LevelProblem
		if last.Status == metav1.ConditionTrue {
			fact.Value, fact.Level = "succeeded", LevelGood
		}
	}
	return fact
}

// setNextTimes computes the next times, whether or not the Schedule is suspended.
func (v *Schedule) setNextTimes(s *v1alpha1.Schedule, now time.Time) {
	timetable, err := schedule.NewTimetable(s.Spec.Cron)
	if err != nil {
		v.NextError = cleanLine("spec." + err.Error())
		return
	}
	const times = 5
	for due := timetable.Next(now); len(v.Next) < times && !due.IsZero(); due = timetable.Next(due) {
		start := timetable.StartTime(s.UID, due, schedule.Jitter(&s.Spec))
		v.Next = append(v.Next, Time{start, start.In(timetable.Location()).Format("Mon 2006-01-02 15:04:05 MST")})
	}
}
