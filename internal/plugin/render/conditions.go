package render

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// Conditions renders the conditions of an object below a title.
func Conditions(s terminal.Style, conditions []metav1.Condition, now time.Time) []string {
	if len(conditions) == 0 {
		return nil
	}
	rows := [][]string{{"CONDITION", "STATUS", "FOR", "REASON", "MESSAGE"}}
	for i := range conditions {
		c := &conditions[i]
		rows = append(rows, []string{
			c.Type, string(c.Status), duration.HumanDuration(max(0, now.Sub(c.LastTransitionTime.Time))),
			terminal.Sanitize(c.Reason), terminal.Sanitize(c.Message),
		})
	}
	return titledTable(s, rows)
}

// Events renders events, the latest last, below a title.
func Events(s terminal.Style, events []corev1.Event, now time.Time) []string {
	if len(events) == 0 {
		return nil
	}
	sorted := slices.Clone(events)
	slices.SortStableFunc(sorted, func(a, b corev1.Event) int { return eventTime(&a).Compare(eventTime(&b)) })
	rows := [][]string{{"EVENT", "AGE", "REASON", "MESSAGE"}}
	for i := range sorted {
		event := &sorted[i]
		age := duration.HumanDuration(max(0, now.Sub(eventTime(event))))
		count := event.Count
		if event.Series != nil {
			count = event.Series.Count
		}
		if count > 1 {
			age += fmt.Sprintf(" (%d times)", count)
		}
		rows = append(rows, []string{event.Type, age, terminal.Sanitize(event.Reason), terminal.Sanitize(event.Message)})
	}
	return titledTable(s, rows)
}

// titledTable renders a table after an empty line.
func titledTable(s terminal.Style, rows [][]string) []string {
	lines := terminal.AlignColumns(rows)
	lines[0] = s.Colorize(terminal.Dim, lines[0])
	return append([]string{""}, lines...)
}
