package render

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/schedule"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// ScheduleTable renders Schedules with their last and next times.
func ScheduleTable(s terminal.Style, schedules []*v1alpha1.Schedule, now time.Time) *Table {
	table := newTable(s, nameHeader, "SCHEDULE", "TIMEZONE", "STATUS", "ACTIVE", "LAST", "RESULT", "NEXT", "MISSED", "AGE")
	for _, sched := range schedules {
		status, result, next := &sched.Status, unknownValue, unknownValue
		if last := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionLastRunSucceeded); last != nil {
			result = s.Colorize(terminal.Red, "failed")
			if last.Status == metav1.ConditionTrue {
				result = s.Colorize(terminal.Green, "succeeded")
			}
		}
		if status.NextScheduleTime != nil {
			next = "due"
			if left := status.NextScheduleTime.Sub(now); left > 0 {
				next = duration.HumanDuration(left)
			}
		}
		table.addRow(sched.Namespace,
			sched.Name, terminal.Sanitize(sched.Spec.Schedule), cmp.Or(terminal.Sanitize(sched.Spec.TimeZone), "UTC"), statusCell(s, sched, sched.Status.Conditions),
			strconv.Itoa(int(status.Active)), formatAgeIfKnown(status.LastScheduleTime, now), result, next,
			strconv.FormatInt(status.Missed, 10), formatAge(sched.CreationTimestamp, now))
	}
	return table
}

// NextTimes renders the next times of a Schedule, whether or not it is suspended. The error names the invalid field of the spec.
func NextTimes(s terminal.Style, sched *v1alpha1.Schedule, count int, now time.Time) ([]string, error) {
	timetable, err := schedule.NewTimetable(sched.Spec.Cron)
	if err != nil {
		return nil, err
	}
	table := newTable(s, "TIME", "UTC", "STARTS", "IN")
	due := now
	for range count {
		if due = timetable.Next(due); due.IsZero() {
			break
		}
		start := timetable.StartTime(sched.UID, due, schedule.Jitter(&sched.Spec))
		table.addRow("", formatLocal(timetable.Location(), due), due.Format("2006-01-02 15:04"),
			start.In(timetable.Location()).Format(time.TimeOnly), duration.HumanDuration(start.Sub(now)))
	}
	return table.Lines(false), nil
}

// RequestedTimes renders the times of a backfill.
func RequestedTimes(s terminal.Style, timetable *schedule.Timetable, requested []time.Time) []string {
	table := newTable(s, "TIME", "UTC")
	for _, due := range requested {
		table.addRow("", formatLocal(timetable.Location(), due), due.Format("2006-01-02 15:04"))
	}
	return table.Lines(false)
}

func formatLocal(location *time.Location, at time.Time) string {
	return at.In(location).Format("Mon 2006-01-02 15:04 MST")
}

// ScheduleRun is a run of a Schedule.
type ScheduleRun struct {
	run           schedule.Run
	controller    *metav1.OwnerReference
	phase, reason string
	color         terminal.Color
	start, end    *metav1.Time
}

// RunOfSequence returns the run that a SequentialJob is.
func RunOfSequence(sj *v1alpha1.SequentialJob) ScheduleRun {
	return ScheduleRun{
		schedule.RunOfSequentialJob(sj), metav1.GetControllerOf(sj), string(SequencePhase(sj)), sj.Status.Reason,
		sequencePhaseColors[sj.Status.Phase], sj.Status.StartTime, sj.Status.CompletionTime,
	}
}

// RunOfSession returns the run that an AgenticSession is.
func RunOfSession(session *v1alpha1.AgenticSession) ScheduleRun {
	phase := SessionPhase(session)
	return ScheduleRun{
		schedule.RunOfSession(session), metav1.GetControllerOf(session), string(phase), sessionReason(session),
		sessionPhaseColors[phase], session.Status.StartTime, session.Status.CompletionTime,
	}
}

// RunTable renders the runs that belong to a Schedule, newest first.
func RunTable(s terminal.Style, sched *v1alpha1.Schedule, runs []ScheduleRun, now time.Time) []string {
	location, err := schedule.LoadTimeZone(sched.Spec.TimeZone)
	if err != nil {
		location = time.UTC
	}
	runs = slices.DeleteFunc(slices.Clone(runs), func(run ScheduleRun) bool { // an object with the label may be of somebody else
		return run.controller == nil || run.controller.UID != sched.UID
	})
	slices.SortFunc(runs, func(a, b ScheduleRun) int {
		return cmp.Or(b.run.CreationTime.Compare(a.run.CreationTime), b.run.ScheduledTime.Compare(a.run.ScheduledTime))
	})
	table := newTable(s, nameHeader, "SCHEDULED", "REQUEST", "STATUS", "REASON", "TIME", "AGE")
	for i := range runs {
		run := &runs[i]
		scheduled, duration := unknownValue, unknownValue
		if !run.run.ScheduledTime.IsZero() {
			scheduled = formatLocal(location, run.run.ScheduledTime)
		}
		if run.start != nil {
			duration = elapsedSince(run.start, now)
			if run.end != nil {
				duration = elapsedSince(run.start, run.end.Time)
			}
		}
		table.addRow("", run.run.Name, scheduled, cmp.Or(terminal.Sanitize(run.run.RerunID), unknownValue),
			s.Colorize(cmp.Or(run.color, terminal.Dim), run.phase), cmp.Or(terminal.Sanitize(run.reason), unknownValue), duration, formatAge(metav1.NewTime(run.run.CreationTime), now))
	}
	return table.Lines(false)
}

// scheduleLines name the Schedule whose run an object is, with the time and the request of the run; none without a Schedule.
func scheduleLines(run *schedule.Run, controller *metav1.OwnerReference) []string {
	if controller == nil || controller.Kind != "Schedule" || controller.APIVersion != v1alpha1.GroupVersion.String() {
		return nil
	}
	due, request := "", ""
	if !run.ScheduledTime.IsZero() {
		due = "due at " + run.ScheduledTime.Format(time.RFC3339)
	}
	if run.RerunID != "" {
		request = "of request " + terminal.Sanitize(run.RerunID)
	}
	return []string{"  " + joinNonEmpty(", ", "a run of Schedule "+terminal.Sanitize(controller.Name), due, request)}
}
