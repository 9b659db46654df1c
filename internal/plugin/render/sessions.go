package render

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/internal/kinds/schedule"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// SessionTable renders AgenticSessions with their used time and cost.
func SessionTable(s terminal.Style, sessions []*v1alpha1.AgenticSession, now time.Time) *Table {
	table := newTable(s, nameHeader, "STATUS", "REASON", "RUN", "ATTEMPT", "TIME", "COST", "RUNNER", "AGE")
	for _, session := range sessions {
		status := &session.Status
		table.addRow(session.Namespace,
			session.Name, coloredSessionPhase(s, session), sessionReason(session), formatOrdinal(status.Run), formatOrdinal(agenticsession.AttemptNumber(status)),
			usedTime(session, now), formatDollars(status.TotalCostUSD), session.Spec.Runner, formatAge(session.CreationTimestamp, now))
	}
	return table
}

func coloredSessionPhase(s terminal.Style, session *v1alpha1.AgenticSession) string {
	if !session.DeletionTimestamp.IsZero() {
		return s.Colorize(terminal.Yellow, v1alpha1.ReasonDeleting)
	}
	phase := SessionPhase(session)
	return s.Colorize(cmp.Or(sessionPhaseColors[phase], terminal.Dim), string(phase))
}

// SessionPhase returns the phase, or Pending before the operator has set it.
func SessionPhase(session *v1alpha1.AgenticSession) v1alpha1.SessionPhase {
	return cmp.Or(session.Status.Phase, v1alpha1.SessionPending)
}

// sessionPhaseColors has no entry for Pending.
var sessionPhaseColors = map[v1alpha1.SessionPhase]terminal.Color{
	v1alpha1.SessionCompleted: terminal.Green, v1alpha1.SessionFailed: terminal.Red,
	v1alpha1.SessionCreating: terminal.Cyan, v1alpha1.SessionRunning: terminal.Cyan,
	v1alpha1.SessionStopping: terminal.Yellow, v1alpha1.SessionStopped: terminal.Yellow,
}

func sessionReason(session *v1alpha1.AgenticSession) string {
	if stopped := session.Status.StoppedReason; stopped != "" {
		return terminal.Sanitize(string(stopped))
	}
	ready := meta.FindStatusCondition(session.Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil || ready.Reason == string(session.Status.Phase) {
		return unknownValue
	}
	return terminal.Sanitize(ready.Reason)
}

// usedTime is the time that the session has used, and its limit, if any.
func usedTime(session *v1alpha1.AgenticSession, now time.Time) string {
	used := session.Status.ActiveDuration.Duration.Duration
	if start := session.Status.Attempt.ActiveSince; start != nil {
		used += max(0, now.Sub(start.Time))
	}
	text := FormatRounded(used.Round(time.Second))
	if timeout := agenticsession.TimeoutOf(&session.Spec); timeout > 0 {
		text += "/" + FormatRounded(timeout)
	}
	return text
}

// SessionDetail renders one session: its finished attempts, the current attempt, its problems and the summary of its result.
func SessionDetail(s terminal.Style, session *v1alpha1.AgenticSession, now time.Time) []string {
	status := &session.Status
	lines := []string{strings.Join([]string{
		s.Bold(session.Name), coloredSessionPhase(s, session), usedTime(session, now), formatDollars(status.TotalCostUSD),
	}, "   ")}
	lines = append(lines, scheduleLines(new(schedule.RunOfSession(session)), metav1.GetControllerOf(session))...)
	var rows [][]string
	for i := range status.Attempts {
		run, duration := &status.Attempts[i], ""
		if run.CompletionTime != nil {
			duration = elapsedSince(run.StartTime, run.CompletionTime.Time)
		}
		symbol, color := outcomeSymbol(run.Outcome)
		rows = append(rows, []string{
			s.Colorize(color, symbol) + " " + AttemptLabel(run.Run, run.Attempt), string(run.Outcome), duration, formatDollars(run.CostUSD), attemptEndReason(run),
		})
	}
	if status.Attempt.JobName != "" {
		rows = append(rows, []string{
			s.Colorize(terminal.Cyan, "▶") + " " + AttemptLabel(status.Run, status.Attempt.Attempt), string(status.Phase), elapsedSince(status.Attempt.StartTime, now),
		})
	}
	lines = append(lines, indentedColumns(rows)...)
	lines = append(lines, problemLines(s, SessionProblems(session))...)
	if result := status.Result; result != nil && result.Summary != "" {
		lines = append(lines, "  "+terminal.Sanitize(result.Summary))
	}
	return lines
}

// AttemptLabel names an attempt of a run.
func AttemptLabel(run, attempt int32) string { return fmt.Sprintf("run %d, attempt %d", run, attempt) }

func outcomeSymbol(outcome v1alpha1.RunOutcome) (symbol string, color terminal.Color) {
	switch outcome {
	case v1alpha1.RunCompleted:
		return "✔", terminal.Green
	case v1alpha1.RunRetried:
		return "✘", terminal.Yellow
	case v1alpha1.RunStopped:
		return "■", terminal.Yellow
	default:
		return "✘", terminal.Red
	}
}

// attemptEndReason explains why an attempt ended, unless its outcome already does.
func attemptEndReason(run *v1alpha1.SessionAttempt) string {
	reason, message := terminal.Sanitize(run.Reason), terminal.Sanitize(run.Message)
	switch {
	case reason == string(run.Outcome):
		return message
	case message == "":
		return reason
	default:
		return reason + ": " + message
	}
}

// SessionChanges returns a line for each difference between before and after, for output that is not a terminal. A nil before is an
// object without a status.
func SessionChanges(before, after *v1alpha1.AgenticSession) []Change {
	if before == nil {
		before = &v1alpha1.AgenticSession{}
	}
	var changes []Change
	for i := range after.Status.Attempts {
		run := &after.Status.Attempts[i]
		isKnown := slices.ContainsFunc(before.Status.Attempts, func(known v1alpha1.SessionAttempt) bool {
			return known.Run == run.Run && known.Attempt == run.Attempt && known.Outcome == run.Outcome && known.JobName == run.JobName
		})
		if !isKnown {
			line := joinNonEmpty(": ", AttemptLabel(run.Run, run.Attempt), string(run.Outcome), attemptEndReason(run))
			changes = append(changes, Change{timeOf(run.CompletionTime), line})
		}
	}
	for _, problem := range SessionProblems(after) {
		if !containsReason(SessionProblems(before), problem) {
			changes = append(changes, Change{problem.Since, problem.String()})
		}
	}
	was, is := &before.Status, &after.Status
	attempt := agenticsession.AttemptNumber(is)
	if is.Phase != "" && (was.Phase != is.Phase || was.Run != is.Run || agenticsession.AttemptNumber(was) != attempt) {
		change := Change{Text: string(is.Phase)}
		if attempt > 0 {
			change.Text += ", " + AttemptLabel(is.Run, attempt)
		}
		switch is.Phase {
		case v1alpha1.SessionRunning:
			change.Time = timeOf(is.Attempt.RunnerStartTime)
		case v1alpha1.SessionCompleted, v1alpha1.SessionFailed:
			change.Time = timeOf(is.CompletionTime)
		}
		changes = append(changes, change)
	}
	return changes
}

var (
	// waitingSessionConditions report problems only while the session waits to run. Later, the attempt shows why it ended.
	waitingSessionConditions = []problemCondition{
		{v1alpha1.ConditionReady, metav1.ConditionFalse},
		{v1alpha1.ConditionRunnerStarted, metav1.ConditionFalse},
	}
	sessionProblemConditions = []problemCondition{
		{v1alpha1.ConditionRunnerReporting, metav1.ConditionFalse},
		{v1alpha1.ConditionBlocked, metav1.ConditionTrue},
	}
)

// SessionProblems returns the problems that keep a session from making progress.
func SessionProblems(session *v1alpha1.AgenticSession) []Problem {
	checks := sessionProblemConditions
	switch SessionPhase(session) {
	case v1alpha1.SessionPending, v1alpha1.SessionCreating:
		checks = append(waitingSessionConditions[:2:2], checks...)
	case v1alpha1.SessionCompleted, v1alpha1.SessionFailed: // what blocked the last run is not current
		checks = checks[:1]
	}
	return findProblems(session.Status.Conditions, checks, func(c *metav1.Condition) bool { return c.Message == "" })
}

// SessionResult renders the result of a session. status.result must not be nil.
func SessionResult(s terminal.Style, session *v1alpha1.AgenticSession) []string {
	result := session.Status.Result
	rows := [][]string{{"attempt", AttemptLabel(result.Run, result.Attempt)}}
	var cost *v1alpha1.Number
	for i := range session.Status.Attempts {
		if attempt := &session.Status.Attempts[i]; attempt.Run == result.Run && attempt.Attempt == result.Attempt && attempt.CostUSD != nil {
			cost = attempt.CostUSD
			rows = append(rows, []string{"cost", formatDollars(cost)})
		}
	}
	if total := session.Status.TotalCostUSD; total != nil && (cost == nil || *total != *cost) {
		rows = append(rows, []string{"all runs", formatDollars(total)})
	}
	if result.Usage != nil {
		rows = append(rows, []string{"usage", terminal.Sanitize(string(result.Usage.Raw))})
	}
	if result.SDKSessionID != "" {
		rows = append(rows, []string{"sdkSessionID", terminal.Sanitize(result.SDKSessionID)})
	}
	if t := result.Transcript; t != nil {
		rows = append(rows, []string{"transcript", terminal.Sanitize(cmp.Or(t.Location, "not archived: "+t.Error))})
	}
	for i := range rows {
		rows[i][0] = s.Colorize(terminal.Dim, rows[i][0])
	}
	lines := terminal.AlignColumns(rows)
	if result.Summary == "" {
		return lines
	}
	lines = append(lines, "")
	for line := range strings.Lines(result.Summary) {
		lines = append(lines, terminal.Sanitize(line))
	}
	return lines
}
