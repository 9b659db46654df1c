package scenario

import (
	"fmt"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// The files of examples/agenticsession that the demo has. The others are for runners that
// call a model.
const (
	// SessionsFile has the sessions that run.
	SessionsFile = "agenticsession/echo.yaml"
	// RefusedSessionFile has one that is refused with RefusedSession in the message.
	RefusedSessionFile = "agenticsession/refused.yaml"
	RefusedSession     = "the URL must not contain credentials"
)

// Session is one of the sessions that run, and how it ends.
type Session struct {
	Name string
	// Actions are what the demo does to it, one after another.
	Actions []SessionAction
	Phase   v1alpha1.SessionPhase
	// Attempts are how they end, each with its reason.
	Attempts []string
	// Summary that it leaves, and what all attempts cost.
	Summary string
	Cost    v1alpha1.Number
}

// SessionAction is something that a user does to a session.
type SessionAction struct {
	// When it is in this phase, and has been for so long that it can be seen.
	When  v1alpha1.SessionPhase
	After time.Duration
	// What it is about.
	What  string
	Patch string
}

// Sessions are those of SessionsFile, every one, in the order in which they are shown.
func Sessions() []Session {
	return []Session{
		{
			Name:     "mend",
			Phase:    v1alpha1.SessionCompleted,
			Attempts: []string{"Retried: ExitedWithError", "Completed"},
			Summary:  "Echoed 2 lines", Cost: "0.24",
		},
		{
			Name: "paint",
			Actions: []SessionAction{
				{v1alpha1.SessionRunning, 3 * time.Second, "paint is at work. It is stopped:", `{"spec":{"operatingMode":"Stopped"}}`},
				{v1alpha1.SessionStopped, 2 * time.Second, "Its workspace is kept. It is let go on:", `{"spec":{"operatingMode":"Running"}}`},
			},
			Phase:    v1alpha1.SessionCompleted,
			Attempts: []string{"Stopped: User", "Completed"},
			// What was done before the stop stands in the workspace, and is not done again.
			Summary: "Echoed 1 lines, resumed after line 1",
		},
		{
			Name:     "dig",
			Phase:    v1alpha1.SessionFailed,
			Attempts: []string{"Failed: DeadlineExceeded"},
			Summary:  "Echoed 1 lines",
		},
	}
}

// Command is what a user would type for the action.
func (a *SessionAction) Command(namespace, name string) string {
	return fmt.Sprintf("kubectl -n %s patch agenticsession %s --type=merge -p '%s'", namespace, name, a.Patch)
}

// Due is what is to be done to the session next, once so many of its actions are done; nil if
// it is not the time for any.
func (e *Session) Due(s *v1alpha1.AgenticSession, done int, inPhaseFor time.Duration) *SessionAction {
	if done >= len(e.Actions) {
		return nil
	}
	next := &e.Actions[done]
	if s.Status.Phase != next.When || inPhaseFor < next.After {
		return nil
	}
	return next
}

// Over reports whether nothing more is to be expected of the session.
func (*Session) Over(s *v1alpha1.AgenticSession) bool {
	return s.Status.Phase == v1alpha1.SessionCompleted || s.Status.Phase == v1alpha1.SessionFailed
}

// Faults are how the session's end differs from what it should be.
func (e *Session) Faults(s *v1alpha1.AgenticSession) []string {
	var faults []string
	wanted := func(what, got, want string) {
		if got != want {
			faults = append(faults, fmt.Sprintf("%s is %q, it should be %q", what, got, want))
		}
	}
	wanted("its phase", string(s.Status.Phase), string(e.Phase))
	for i := range max(len(e.Attempts), len(s.Status.Runs)) {
		var got, want string
		if i < len(s.Status.Runs) {
			got = ended(&s.Status.Runs[i])
		}
		if i < len(e.Attempts) {
			want = e.Attempts[i]
		}
		wanted(fmt.Sprintf("the end of attempt %d", i+1), got, want)
	}
	var summary string
	if s.Status.Result != nil {
		summary = s.Status.Result.Summary
	}
	wanted("its result", summary, e.Summary)
	var cost v1alpha1.Number
	if s.Status.TotalCostUSD != nil {
		cost = *s.Status.TotalCostUSD
	}
	wanted("its cost", string(cost), string(e.Cost))
	return faults
}

// ended is how an attempt ended, and why, if that says more.
func ended(run *v1alpha1.SessionRun) string {
	if run.Reason == string(run.Outcome) {
		return run.Reason
	}
	return fmt.Sprintf("%s: %s", run.Outcome, run.Reason)
}
