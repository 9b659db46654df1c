package render

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

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

func timeOf(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}
