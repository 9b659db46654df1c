package plugin

import (
	"context"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/logs"
	"github.com/yardmaster/yardmaster/internal/session"
)

// sessionLogsCommand is `kubectl yardmaster session logs`.
type sessionLogsCommand struct {
	*environment
	logFlags

	container string
}

func newSessionLogsCommand(env *environment) *cobra.Command {
	l := &sessionLogsCommand{environment: env}
	command := &cobra.Command{
		Use:   "logs NAME",
		Short: "Print the log of an AgenticSession's runner",
		Long: "Print the log of an AgenticSession's runner. Each line starts with its run and attempt.\n\n" +
			"Stopping a session deletes its Pods and their logs. Missing logs are reported on standard error.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: agenticSessionKind().completeSingleName(env),
		RunE:              func(command *cobra.Command, args []string) error { return l.printLogs(command.Context(), args[0]) },
	}
	command.Flags().StringVarP(&l.container, "container", "c", v1alpha1.RunnerContainer, "Print the log of this container, such as a sidecar.")
	l.addLogFlags(command, "Keep printing, attempt after attempt, until the session finishes or is stopped.")
	return command
}

func (l *sessionLogsCommand) printLogs(ctx context.Context, name string) error {
	if err := l.validateFlags(); err != nil {
		return err
	}
	cluster, s, err := agenticSessionKind().connectAndGet(ctx, l.environment, name)
	if err != nil {
		return err
	}
	podSelector := selectSessionPods(s)
	streamer, err := logs.NewSessionStreamer(ctx, &podLogClient{cluster, s.Namespace, podSelector}, s, l.container, l.streamOptions(l.environment))
	if err != nil {
		return err
	}
	if !l.follow {
		return streamer.PrintCurrent(ctx, s)
	}
	return followLogs(ctx, cluster, agenticSessionKind(), s, podSelector, func(ctx context.Context, changes logs.Changes[*v1alpha1.AgenticSession]) error {
		return streamer.Follow(ctx, s, isSessionInactive, changes)
	})
}

// selectSessionPods selects the Pods created for the AgenticSession.
func selectSessionPods(s *v1alpha1.AgenticSession) []client.ListOption {
	return []client.ListOption{client.InNamespace(s.Namespace), client.MatchingLabels{session.LabelSessionUID: string(s.UID)}}
}
