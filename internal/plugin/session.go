package plugin

import (
	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
)

// newSessionCommand is `kubectl yardmaster session`, whose commands are about AgenticSessions.
func newSessionCommand(env *environment) *cobra.Command {
	command := &cobra.Command{
		Use:     "session",
		Aliases: []string{"sessions", "agenticsession", "as"},
		Short:   "Look at AgenticSessions, stop them and start them again",
		Args:    cobra.NoArgs,
		RunE:    func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.AddCommand(newListCommand(env, agenticSessionKind(), "List AgenticSessions, with the time and the money they have used"),
		newSessionWatchCommand(env), newSessionLogsCommand(env), newStopSessionCommand(env), newRestartSessionCommand(env), newSessionResultCommand(env))
	return command
}

func agenticSessionKind() *resourceKind[*v1alpha1.AgenticSession] {
	return &resourceKind[*v1alpha1.AgenticSession]{
		kindName: "AgenticSession", singularName: "agenticsession",
		newList: func() client.ObjectList { return &v1alpha1.AgenticSessionList{Items: []v1alpha1.AgenticSession{}} },
		rows:    render.Sessions, rowsOfNamespaces: render.SessionsOfNamespaces,
		completionHint: func(s *v1alpha1.AgenticSession) string { return string(s.Status.Phase) },
	}
}

// newSessionWatchCommand is `kubectl yardmaster session watch`.
func newSessionWatchCommand(env *environment) *cobra.Command {
	return newWatchCommand(env, watchableSessions(), "Watch AgenticSessions get on",
		"Watch an AgenticSession attempt by attempt until it has ended or is stopped; without a NAME all of the namespace, until interrupted.\n\n"+
			"On a terminal it is drawn in one place; anywhere else there is a line for each change.\n"+
			"The exit code is 0 if all completed, 1 if one failed or is stopped, and 2 if they could not be watched.",
		"End when all have ended or are stopped.")
}

// isSessionInactive reports whether nothing more is to be expected of a session, unless somebody asks for
// it: it has ended or is stopped, and the operator knows all that was asked for.
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

// checkSessionSucceeded is what the exit code tells of a session that rests.
func checkSessionSucceeded(s *v1alpha1.AgenticSession) error {
	if s.Status.Phase == v1alpha1.SessionCompleted {
		return nil
	}
	return errUnsuccessful
}
