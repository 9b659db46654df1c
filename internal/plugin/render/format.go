package render

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// unknownValue is shown for a value that could not be measured. It never means 0.
const unknownValue = "-"

func formatCount[N int32 | int64](n *N) string {
	if n == nil {
		return unknownValue
	}
	return strconv.FormatInt(int64(*n), 10)
}

// formatOrdinal formats the number of a run or attempt. 0 means that it has not started.
func formatOrdinal(n int32) string {
	if n == 0 {
		return unknownValue
	}
	return strconv.Itoa(int(n))
}

// FormatDecimal rounds a number to one decimal place.
func FormatDecimal(n float64) string {
	return strconv.FormatFloat(math.Round(n*10)/10, 'f', -1, 64)
}

// formatDollars formats a cost. An unknown cost is not $0.
func formatDollars(cost *v1alpha1.Number) string {
	if cost == nil {
		return unknownValue
	}
	return "$" + terminal.Sanitize(string(*cost))
}

func formatDuration(d *metav1.Duration) string {
	if d == nil {
		return unknownValue
	}
	return FormatRounded(d.Duration)
}

// FormatRounded rounds a duration to a useful precision.
func FormatRounded(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	default:
		return d.Round(time.Second).String()
	}
}

// elapsedSince is empty without a start.
func elapsedSince(start *metav1.Time, now time.Time) string {
	if start == nil {
		return ""
	}
	return max(0, now.Sub(start.Time)).Round(time.Second).String()
}

// formatAge formats the time since an object's creation as kubectl does.
func formatAge(created metav1.Time, now time.Time) string {
	if created.IsZero() {
		return ""
	}
	return duration.HumanDuration(max(0, now.Sub(created.Time)))
}

// formatAgeIfKnown formats the time since then; nil is unknown.
func formatAgeIfKnown(then *metav1.Time, now time.Time) string {
	if then == nil {
		return unknownValue
	}
	return formatAge(*then, now)
}

// statusCell is the reason of the condition Ready, or Pending before the operator has set it. Paused and suspended objects are not
// green.
func statusCell(s terminal.Style, object metav1.Object, conditions []metav1.Condition) string {
	ready := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady)
	switch {
	case !object.GetDeletionTimestamp().IsZero():
		return s.Colorize(terminal.Yellow, v1alpha1.ReasonDeleting)
	case ready == nil:
		return s.Colorize(terminal.Dim, "Pending")
	case ready.Reason == v1alpha1.ReasonPaused, ready.Reason == v1alpha1.ReasonSuspended:
		return s.Colorize(terminal.Yellow, ready.Reason)
	case ready.Status == metav1.ConditionTrue:
		return s.Colorize(terminal.Green, ready.Reason)
	default:
		return s.Colorize(terminal.Red, cmp.Or(terminal.Sanitize(ready.Reason), string(ready.Status)))
	}
}

func joinNonEmpty(separator string, texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(text string) bool { return text == "" }), separator)
}

func indentedColumns(rows [][]string) []string {
	lines := terminal.AlignColumns(rows)
	for i := range lines {
		lines[i] = "  " + lines[i]
	}
	return lines
}
