package plugin

import (
	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
)

// newSession is `kubectl yardmaster session`, whose commands are about AgenticSessions.
func newSession(env *environment) *cobra.Command {
	command := &cobra.Command{
		Use:     "session",
		Aliases: []string{"sessions", "agenticsession", "as"},
		Short:   "Look at AgenticSessions, stop them and start them again",
		Args:    cobra.NoArgs,
		RunE:    func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.AddCommand(newKindList(env, sessionKind(), "List AgenticSessions, with the time and the money they have used"),
		newSessionWatch(env), newSessionLogs(env), newStop(env), newRestart(env), newResult(env))
	return command
}

func sessionKind() *kind[*v1alpha1.AgenticSession] {
	return &kind[*v1alpha1.AgenticSession]{
		name: "AgenticSession", resource: "agenticsession",
		list: func() client.ObjectList { return &v1alpha1.AgenticSessionList{Items: []v1alpha1.AgenticSession{}} },
		rows: render.Sessions, rowsOfNamespaces: render.SessionsOfNamespaces,
		remark: func(s *v1alpha1.AgenticSession) string { return string(s.Status.Phase) },
	}
}

// newSessionWatch is `kubectl yardmaster session watch`.
func newSessionWatch(env *environment) *cobra.Command {
	return newEndingWatch(env, sessionEnding(), "Watch AgenticSessions get on",
		"Watch an AgenticSession attempt by attempt until it has ended or is stopped; without a NAME all of the namespace, until interrupted.\n\n"+
			"On a terminal it is drawn in one place; anywhere else there is a line for each change.\n"+
			"The exit code is 0 if all completed, 1 if one failed or is stopped, and 2 if they could not be watched.",
		"End when all have ended or are stopped.")
}

// rests reports whether nothing more is to be expected of a session, unless somebody asks for
// it: it has ended or is stopped, and the operator knows all that was asked for.
func rests(s *v1alpha1.AgenticSession) bool {
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

// sessionOutcome is what the exit code tells of a session that rests.
func sessionOutcome(s *v1alpha1.AgenticSession) error {
	if s.Status.Phase == v1alpha1.SessionCompleted {
		return nil
	}
	return errFound
}
