package plugin

import (
	"github.com/spf13/cobra"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// newSessionCommand is `kubectl yardmaster session`, the parent of commands for
// AgenticSessions.
func newSessionCommand(env *environment) *cobra.Command {
	return newParentCommand("session", []string{"sessions", "agenticsession", "as"}, "Inspect, stop and restart AgenticSessions",
		newListCommand(env, agenticSessionKind(), "List AgenticSessions with the time and cost they have used"),
		newSessionWatchCommand(env), newSessionLogsCommand(env),
		newStopSessionCommand(env), newRestartSessionCommand(env), newSessionResultCommand(env))
}

// newSessionWatchCommand is `kubectl yardmaster session watch`.
func newSessionWatchCommand(env *environment) *cobra.Command {
	return newWatchCommand(env, watchableSessions(), "Watch AgenticSessions",
		"Watch the attempts of an AgenticSession until it finishes or is stopped. Without a NAME, watch all AgenticSessions in the namespace "+
			"until interrupted.\n\n"+watchOutputHelp+
			"The exit code is 0 if all completed, 1 if one failed or is stopped, and 2 if watching failed.",
		"Exit when all sessions have finished or are stopped.")
}

// isSessionInactive reports whether no further change is expected unless a user requests
// one: the session has finished or is stopped, and the operator has observed its spec.
func isSessionInactive(s *v1alpha1.AgenticSession) bool {
	if s.Status.ObservedGeneration < s.Generation {
		return false
	}
	switch s.Status.Phase {
	case v1alpha1.SessionCompleted, v1alpha1.SessionFailed, v1alpha1.SessionStopped:
		return true
	default:
		return false
	}
}

// checkSessionSucceeded returns errUnsuccessful for an inactive session that did not complete.
func checkSessionSucceeded(s *v1alpha1.AgenticSession) error {
	if s.Status.Phase == v1alpha1.SessionCompleted {
		return nil
	}
	return errUnsuccessful
}
