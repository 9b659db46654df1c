package view

import (
	"fmt"
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
		e.NeedsAttention, e.Reason, e.Message, e.Since = true, cleanLine(last.Reason), cleanLine(last.Message), last.LastTransitionTime.Time
	}
	return e
}

// ScheduleOf returns the Schedule whose run an object is, and the time of the run; nil without one.
func ScheduleOf(e *Entry) (of *Entry, due time.Time) {
	object, isObject := e.Object.(metav1.Object)
	if !isObject {
		return nil, due
	}
	owner := metav1.GetControllerOf(object)
	if owner == nil || owner.Kind != Schedules.Name || owner.APIVersion != v1alpha1.GroupVersion.String() {
		return nil, due
	}
	if at, err := time.Parse(time.RFC3339, object.GetAnnotations()[v1alpha1.AnnotationScheduledTime]); err == nil {
		due = at
	}
	return &Entry{Kind: Schedules, Namespace: e.Namespace, Name: cleanLine(owner.Name)}, due
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
	Active               []ActiveRun
	LastMissed           string
	LastMissedTime       time.Time
	Conditions           []Condition
	Actions              []Action
}

// ActiveRun is a run that has not finished.
type ActiveRun struct {
	// Kind of the run; nil for a job of a queue.
	Kind *Kind
	Name string
	Due  time.Time
	// Request is the ID of the request; empty if the time is of the timetable.
	Request string
}

// NewSchedule computes the page of a Schedule.
func NewSchedule(e *Entry, s *v1alpha1.Schedule, now time.Time) *Schedule {
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
	if request := status.Rerun; request != nil {
		v.Facts = append(v.Facts, Fact{Name: "Last request", Value: cleanLine(fmt.Sprintf("%s: %d started, %d missed, %d left", request.ID, request.Runs, request.Missed, request.Left))})
	}
	v.setNextTimes(s, now)
	for i := range status.ActiveRuns {
		run := &status.ActiveRuns[i]
		v.Active = append(v.Active, ActiveRun{kind, cleanLine(run.Name), timeOf(run.ScheduledTime), cleanLine(run.RerunID)})
	}
	if missed := status.LastMissed; missed != nil {
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
