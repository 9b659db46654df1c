package plugin

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/follow"
	"github.com/yardmaster/yardmaster/internal/plugin/logs"
	"github.com/yardmaster/yardmaster/internal/session"
)

// sessionLogsCommand is `kubectl yardmaster session logs`.
type sessionLogsCommand struct {
	*environment

	container                       string
	follow, timestamps, allAttempts bool
	tail                            int64
	since                           time.Duration
}

func newSessionLogsCommand(env *environment) *cobra.Command {
	l := &sessionLogsCommand{environment: env}
	command := &cobra.Command{
		Use:   "logs NAME",
		Short: "Tell the log of an AgenticSession's runner",
		Long: "Tell the log of an AgenticSession's runner, each line with its run and attempt.\n\n" +
			"A stopped session's Pods are deleted, and their logs with them. What a Pod no longer has is told on standard error.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: agenticSessionKind().completeSingleName(env),
		RunE:              func(command *cobra.Command, args []string) error { return l.printLogs(command.Context(), args[0]) },
	}
	f := command.Flags()
	f.StringVarP(&l.container, "container", "c", v1alpha1.RunnerContainer, "Tell this container's log, such as a sidecar's.")
	f.BoolVarP(&l.follow, "follow", "f", false, "Go on from attempt to attempt until the session has ended or is stopped.")
	f.Int64Var(&l.tail, "tail", tailAllLines, "How many lines of each log there is now are told, from its end; -1: all.")
	f.DurationVar(&l.since, "since", 0, "Tell only what is younger than this, such as 5m, of the logs there are now.")
	f.BoolVar(&l.timestamps, "timestamps", false, "Tell when each line was written.")
	f.BoolVar(&l.allAttempts, "all-attempts", false, "Tell also of earlier attempts and runs.")
	return command
}

func (l *sessionLogsCommand) printLogs(ctx context.Context, name string) error {
	shared := sequenceLogsCommand{
		environment: l.environment, follow: l.follow, timestamps: l.timestamps, allAttempts: l.allAttempts, tail: l.tail, since: l.since,
	}
	if err := shared.validateFlags(); err != nil {
		return err
	}
	cluster, err := l.connect(l.clientConfig)
	if err != nil {
		return err
	}
	s := &v1alpha1.AgenticSession{}
	if err := cluster.getByName(ctx, name, s); err != nil {
		return err
	}
	teller, err := logs.NewSessionStreamer(ctx, &podLogClient{cluster, s.Namespace, selectSessionPods(s)}, s, l.container, shared.streamOptions())
	if err != nil {
		return err
	}
	if !l.follow {
		return teller.PrintCurrent(ctx, s)
	}
	return followSession(ctx, cluster, s, teller)
}

func followSession(ctx context.Context, cluster *clusterConnection, s *v1alpha1.AgenticSession, teller *logs.SessionStreamer) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	sessions, err := follow.StartFeed(ctx, cluster.WithWatch, agenticSessionKind().newList(), &v1alpha1.AgenticSession{}, selectSingleObject(s)...)
	if err != nil {
		return err
	}
	pods, err := follow.StartFeed(ctx, cluster.WithWatch, &corev1.PodList{}, &corev1.Pod{}, selectSessionPods(s)...)
	if err != nil {
		return err
	}
	trouble := make(chan error)
	go func() { forwardPermissionErrors(ctx, trouble, sessions.Errors, pods.Errors) }()
	return teller.Follow(ctx, s, isSessionInactive, logs.SessionWorld{Sessions: sessions.Updates, Pods: pods.Updates, Trouble: trouble})
}

// selectSessionPods selects those made for the AgenticSession.
func selectSessionPods(s *v1alpha1.AgenticSession) []client.ListOption {
	return []client.ListOption{client.InNamespace(s.Namespace), client.MatchingLabels{session.LabelSessionUID: string(s.UID)}}
}
