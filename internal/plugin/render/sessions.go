package render

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// Sessions are a header and a line for each AgenticSession.
func Sessions(s terminal.Style, sessions []*v1alpha1.AgenticSession, now time.Time) []string {
	return table(s, nil, sessionRows(s, sessions, now))
}

// SessionsOfNamespaces are Sessions that say which namespace each is of.
func SessionsOfNamespaces(s terminal.Style, sessions []*v1alpha1.AgenticSession, now time.Time) []string {
	return table(s, namespacesOf(sessions), sessionRows(s, sessions, now))
}

func sessionRows(s terminal.Style, sessions []*v1alpha1.AgenticSession, now time.Time) [][]string {
	rows := [][]string{{nameHeader, "STATUS", "REASON", "RUN", "ATTEMPT", "TIME", "COST", "RUNNER", "AGE"}}
	for _, session := range sessions {
		status := &session.Status
		rows = append(rows, []string{
			session.Name, coloredSessionPhase(s, session), sessionReason(session), formatOrdinal(status.Run), formatOrdinal(status.Attempt),
			usedTime(session, now), formatDollars(status.TotalCostUSD), session.Spec.Runner, formatAge(session.CreationTimestamp, now),
		})
	}
	return rows
}

// coloredSessionPhase is the phase in its colour, or that the session is being deleted.
func coloredSessionPhase(s terminal.Style, session *v1alpha1.AgenticSession) string {
	if !session.DeletionTimestamp.IsZero() {
		return s.Colorize(terminal.Yellow, v1alpha1.ReasonDeleting)
	}
	phase := SessionPhase(session)
	return s.Colorize(sessionColor(phase), string(phase))
}

// SessionPhase is that of the session, also before the operator has seen it.
func SessionPhase(session *v1alpha1.AgenticSession) v1alpha1.SessionPhase {
	if session.Status.Phase == "" {
		return v1alpha1.SessionPending
	}
	return session.Status.Phase
}

func sessionColor(phase v1alpha1.SessionPhase) terminal.Color {
	switch phase {
	case v1alpha1.SessionCompleted:
		return terminal.Green
	case v1alpha1.SessionFailed:
		return terminal.Red
	case v1alpha1.SessionCreating, v1alpha1.SessionRunning:
		return terminal.Cyan
	case v1alpha1.SessionStopping, v1alpha1.SessionStopped:
		return terminal.Yellow
	default:
		return terminal.Dim
	}
}

// sessionReason the phase, if it says more than the phase does.
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

// formatOrdinal of what has begun: there is no first run before there is a status.
func formatOrdinal(n int32) string {
	if n == 0 {
		return unknownValue
	}
	return strconv.Itoa(int(n))
}

// usedTime is the time that a session has had, of the time that it may have.
func usedTime(session *v1alpha1.AgenticSession, now time.Time) string {
	used := time.Duration(session.Status.ActiveSeconds) * time.Second
	if start := session.Status.JobStartTime; start != nil {
		used += max(0, now.Sub(start.Time))
	}
	text := formatRounded(used.Round(time.Second))
	if timeout := session.Spec.Timeout; timeout != nil && *timeout > 0 {
		text += "/" + formatRounded(time.Duration(*timeout)*time.Second)
	}
	return text
}

// formatDollars that nobody told of are not 0.
func formatDollars(cost *v1alpha1.Number) string {
	if cost == nil {
		return unknownValue
	}
	return "$" + terminal.Sanitize(string(*cost))
}

// SessionDetail are lines about one session: each attempt that is recorded, the one under way, and
// what it has left or waits for.
func SessionDetail(s terminal.Style, session *v1alpha1.AgenticSession, now time.Time) []string {
	status := &session.Status
	lines := []string{strings.Join([]string{s.Bold(session.Name), coloredSessionPhase(s, session), usedTime(session, now), formatDollars(status.TotalCostUSD)}, "   ")}
	var rows [][]string
	for i := range status.Runs {
		rows = append(rows, attemptRow(s, &status.Runs[i]))
	}
	if status.Job != "" {
		rows = append(rows, []string{
			s.Colorize(terminal.Cyan, "▶") + " " + attemptLabel(status.Run, status.Attempt), string(status.Phase), elapsedSince(status.JobStartTime, now),
		})
	}
	lines = append(lines, indentedColumns(rows)...)
	for _, trouble := range SessionProblems(session) {
		lines = append(lines, "  "+s.Colorize(terminal.Yellow, trouble.String()))
	}
	if result := status.Result; result != nil && result.Summary != "" {
		lines = append(lines, "  "+terminal.Sanitize(result.Summary))
	}
	return lines
}

func attemptLabel(run, attempt int32) string { return fmt.Sprintf("run %d, attempt %d", run, attempt) }

func elapsedSince(start *metav1.Time, now time.Time) string {
	if start == nil {
		return ""
	}
	return formatElapsed(start.Time, now)
}

// attemptRow is about an attempt that has ended.
func attemptRow(s terminal.Style, run *v1alpha1.SessionRun) []string {
	sign, colour := outcomeSymbol(run.Outcome)
	took := ""
	if run.Start != nil && run.End != nil {
		took = formatElapsed(run.Start.Time, run.End.Time)
	}
	return []string{s.Colorize(colour, sign) + " " + attemptLabel(run.Run, run.Attempt), string(run.Outcome), took, formatDollars(run.CostUSD), attemptEndReason(run)}
}

func outcomeSymbol(outcome v1alpha1.RunOutcome) (sign string, colour terminal.Color) {
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

// attemptEndReason an attempt ended, if its outcome does not say it.
func attemptEndReason(run *v1alpha1.SessionRun) string {
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

// SessionChanges are lines about what is different from before, for output that is not a
// terminal. Before may be nil.
func SessionChanges(before, after *v1alpha1.AgenticSession) []string {
	if before == nil {
		before = &v1alpha1.AgenticSession{}
	}
	var lines []string
	for i := range after.Status.Runs {
		if run := &after.Status.Runs[i]; findRecordedRun(before, run) == nil {
			line := attemptLabel(run.Run, run.Attempt) + ": " + string(run.Outcome)
			if why := attemptEndReason(run); why != "" {
				line += ": " + why
			}
			lines = append(lines, line)
		}
	}
	for _, trouble := range SessionProblems(after) {
		if !containsReason(SessionProblems(before), trouble) {
			lines = append(lines, trouble.String())
		}
	}
	was, is := &before.Status, &after.Status
	if is.Phase != "" && (was.Phase != is.Phase || was.Run != is.Run || was.Attempt != is.Attempt) {
		line := string(is.Phase)
		if is.Attempt > 0 {
			line += ", " + attemptLabel(is.Run, is.Attempt)
		}
		lines = append(lines, line)
	}
	return lines
}

// findRecordedRun is what is known already of how an attempt ended; nil if nothing is.
func findRecordedRun(session *v1alpha1.AgenticSession, run *v1alpha1.SessionRun) *v1alpha1.SessionRun {
	for i := range session.Status.Runs {
		if known := &session.Status.Runs[i]; known.Run == run.Run && known.Attempt == run.Attempt && known.Outcome == run.Outcome && known.Job == run.Job {
			return known
		}
	}
	return nil
}

// SessionProblems are why a session does not get on, as its conditions tell. What has ended
// an attempt stands with the attempt.
func SessionProblems(session *v1alpha1.AgenticSession) []Problem {
	var told []Problem
	tell := func(condition string, bad metav1.ConditionStatus) {
		c := meta.FindStatusCondition(session.Status.Conditions, condition)
		if c == nil || c.Status != bad || c.Message == "" {
			return
		}
		one := Problem{terminal.Sanitize(c.Reason), terminal.Sanitize(c.Message)}
		if !containsReason(told, one) {
			told = append(told, one)
		}
	}
	phase := SessionPhase(session)
	if phase == v1alpha1.SessionPending || phase == v1alpha1.SessionCreating {
		tell(v1alpha1.ConditionReady, metav1.ConditionFalse)
		tell(v1alpha1.ConditionPodScheduled, metav1.ConditionFalse)
	}
	tell(v1alpha1.ConditionStopStuck, metav1.ConditionTrue)
	tell(v1alpha1.ConditionResultValid, metav1.ConditionFalse)
	return told
}

// SessionResult are lines about what a session's runner has left. There is one.
func SessionResult(s terminal.Style, session *v1alpha1.AgenticSession) []string {
	result := session.Status.Result
	rows := [][]string{{"attempt", attemptLabel(result.Run, result.Attempt)}}
	if result.CostUSD != nil {
		rows = append(rows, []string{"cost", formatDollars(result.CostUSD)})
	}
	if total := session.Status.TotalCostUSD; total != nil && (result.CostUSD == nil || *total != *result.CostUSD) {
		rows = append(rows, []string{"all runs", formatDollars(total)})
	}
	if result.Usage != nil {
		rows = append(rows, []string{"usage", terminal.Sanitize(string(result.Usage.Raw))})
	}
	if result.SDKSessionID != "" {
		rows = append(rows, []string{"sdkSessionId", terminal.Sanitize(result.SDKSessionID)})
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
