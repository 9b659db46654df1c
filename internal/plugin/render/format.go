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
	"k8s.io/utils/ptr"

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
	case ready.Reason == v1alpha1.ReasonSuspended:
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

// Problem keeps an object from fulfilling its spec, as a condition reports it.
type Problem struct {
	Reason, Message string
	// Since is when the condition got its status.
	Since time.Time
}

func (p Problem) String() string { return p.Reason + ": " + p.Message }

// problemCondition names a condition and the status in which it reports a problem.
type problemCondition struct {
	conditionType string
	badStatus     metav1.ConditionStatus
}

// findProblems returns a Problem for each condition with its bad status, in the order of checks. Conditions with the same reason give
// one Problem.
func findProblems(conditions []metav1.Condition, checks []problemCondition, isIgnored func(*metav1.Condition) bool) []Problem {
	var problems []Problem
	for _, check := range checks {
		c := meta.FindStatusCondition(conditions, check.conditionType)
		if c == nil || c.Status != check.badStatus || isIgnored(c) {
			continue
		}
		problem := Problem{terminal.Sanitize(c.Reason), terminal.Sanitize(c.Message), c.LastTransitionTime.Time}
		if !containsReason(problems, problem) {
			problems = append(problems, problem)
		}
	}
	return problems
}

// containsReason compares only reasons: messages contain numbers that change all the time.
func containsReason(problems []Problem, problem Problem) bool {
	return slices.ContainsFunc(problems, func(p Problem) bool { return p.Reason == problem.Reason })
}

func problemLines(s terminal.Style, problems []Problem) []string {
	var lines []string
	for _, problem := range problems {
		lines = append(lines, "  "+s.Colorize(terminal.Yellow, problem.Reason+": "+problem.Message))
	}
	return lines
}

// Change is a line about a change of an object.
type Change struct {
	// Time is when the change happened, according to the object's status; zero if unknown.
	Time time.Time
	Text string
}

func timeOf(t *metav1.Time) time.Time { return ptr.Deref(t, metav1.Time{}).Time }
