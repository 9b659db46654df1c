package scenario

import (
	"fmt"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// The files of examples/agenticsession that the demo uses. The other files are for runners that
// call a model.
const (
	// SessionsFile contains the sessions that run.
	SessionsFile = "agenticsession/echo.yaml"
	// RefusedSessionFile contains a session that is refused with RefusedSessionMessage.
	RefusedSessionFile    = "agenticsession/refused.yaml"
	RefusedSessionMessage = "the URL must not contain credentials"
)

// SessionExample is a session of SessionsFile and its expected end.
type SessionExample struct {
	Name string
	// Actions are what the demo does to the session, in order.
	Actions []SessionAction
	Phase   v1alpha1.SessionPhase
	// Attempts are the expected outcomes of the attempts, with their reasons.
	Attempts []string
	// Summary is the expected summary, and Cost the expected total cost.
	Summary string
	Cost    v1alpha1.Number
}

// SessionAction is a change that the demo makes to a session.
type SessionAction struct {
	// The action is due when the session has been in the phase When for the time After, so that
	// viewers notice the phase.
	When  v1alpha1.SessionPhase
	After time.Duration
	// Description is printed before the action.
	Description string
	Patch       string
}

// SessionExamples returns all sessions of SessionsFile in the order of the demo.
func SessionExamples() []SessionExample {
	return []SessionExample{
		{
			Name:     "retry",
			Phase:    v1alpha1.SessionCompleted,
			Attempts: []string{"Retried: ExitedWithError", "Completed"},
			Summary:  "Echoed 2 lines", Cost: "0.24",
		},
		{
			Name: "pause",
			Actions: []SessionAction{
				{v1alpha1.SessionRunning, 3 * time.Second, "pause is running. Stopping it:", `{"spec":{"suspend":true}}`},
				{v1alpha1.SessionStopped, 2 * time.Second, "Its workspace is kept. Restarting it:", `{"spec":{"suspend":false}}`},
			},
			Phase:    v1alpha1.SessionCompleted,
			Attempts: []string{"Stopped: User", "Completed"},
			// The workspace contains the progress before the stop, so the runner does not repeat it.
			Summary: "Echoed 1 lines, resumed after line 1",
		},
		{
			Name:     "slow",
			Phase:    v1alpha1.SessionFailed,
			Attempts: []string{"Failed: DeadlineExceeded"},
			Summary:  "Echoed 1 lines",
		},
	}
}

// KubectlCommand returns the kubectl command for the action.
func (a *SessionAction) KubectlCommand(namespace, name string) string {
	return fmt.Sprintf("kubectl -n %s patch agenticsession %s --type=merge -p '%s'", namespace, name, a.Patch)
}

// DueAction returns the next action if it is due, otherwise nil. done is the number of applied
// actions.
func (e *SessionExample) DueAction(s *v1alpha1.AgenticSession, done int, inPhaseFor time.Duration) *SessionAction {
	if done >= len(e.Actions) {
		return nil
	}
	next := &e.Actions[done]
	if s.Status.Phase != next.When || inPhaseFor < next.After {
		return nil
	}
	return next
}

// IsFinished reports whether the session has completed or failed.
func (*SessionExample) IsFinished(s *v1alpha1.AgenticSession) bool {
	return s.Status.Phase == v1alpha1.SessionCompleted || s.Status.Phase == v1alpha1.SessionFailed
}

// Mismatches returns the differences between the final state and the expectation.
func (e *SessionExample) Mismatches(s *v1alpha1.AgenticSession) []string {
	var mismatches []string
	compare := func(what, got, want string) {
		if got != want {
			mismatches = append(mismatches, fmt.Sprintf("%s is %q, expected %q", what, got, want))
		}
	}
	compare("phase", string(s.Status.Phase), string(e.Phase))
	for i := range max(len(e.Attempts), len(s.Status.Attempts)) {
		var got, want string
		if i < len(s.Status.Attempts) {
			got = describeRunEnd(&s.Status.Attempts[i])
		}
		if i < len(e.Attempts) {
			want = e.Attempts[i]
		}
		compare(fmt.Sprintf("outcome of attempt %d", i+1), got, want)
	}
	var summary string
	if s.Status.Result != nil {
		summary = s.Status.Result.Summary
	}
	compare("summary", summary, e.Summary)
	var cost v1alpha1.Number
	if s.Status.TotalCostUSD != nil {
		cost = *s.Status.TotalCostUSD
	}
	compare("cost", string(cost), string(e.Cost))
	return mismatches
}

// describeRunEnd returns an attempt's outcome, and its reason if that differs.
func describeRunEnd(run *v1alpha1.SessionAttempt) string {
	if run.Reason == string(run.Outcome) {
		return run.Reason
	}
	return fmt.Sprintf("%s: %s", run.Outcome, run.Reason)
}
