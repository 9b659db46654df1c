package render

import (
	"cmp"
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
		table.addRow("", due.In(timetable.Location()).Format("Mon 2006-01-02 15:04 MST"), due.Format("2006-01-02 15:04"),
			start.In(timetable.Location()).Format(time.TimeOnly), duration.HumanDuration(start.Sub(now)))
	}
	return table.Lines(false), nil
}
