package render

import (
	"cmp"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// QueueTable renders Queues with their message counts.
func QueueTable(s terminal.Style, queues []*v1alpha1.Queue, now time.Time) *Table {
	table := newTable(s, nameHeader, "STATUS", "READY", "IN FLIGHT", "DELAYED", "DEAD", "OLDEST", "P95 WAIT", "ENGINE", "AGE")
	for _, q := range queues {
		status := &q.Status
		table.addRow(q.Namespace,
			q.Name, statusCell(s, q, status.Conditions), formatCount(status.Ready), formatCount(status.InFlight), formatCount(status.Delayed),
			deadLetterCell(s, status.Dead), oldestMessageAge(status, now), waitPercentile(status.Wait),
			cmp.Or(string(status.Engine), unknownValue), formatAge(q.CreationTimestamp, now))
	}
	return table
}

func deadLetterCell(s terminal.Style, number *int64) string {
	if number != nil && *number > 0 {
		return s.Colorize(terminal.Yellow, formatCount(number))
	}
	return formatCount(number)
}

func oldestMessageAge(status *v1alpha1.QueueStatus, now time.Time) string {
	if status.OldestTime == nil {
		return unknownValue
	}
	return formatAge(*status.OldestTime, now)
}

func waitPercentile(wait *v1alpha1.WaitTimes) string {
	if wait == nil {
		return unknownValue
	}
	return formatDuration(wait.P95)
}
