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

// sessionLogs is `kubectl yardmaster session logs`.
type sessionLogs struct {
	*environment

	container                       string
	follow, timestamps, allAttempts bool
	tail                            int64
	since                           time.Duration
}

func newSessionLogs(env *environment) *cobra.Command {
	l := &sessionLogs{environment: env}
	command := &cobra.Command{
		Use:   "logs NAME",
		Short: "Tell the log of an AgenticSession's runner",
		Long: "Tell the log of an AgenticSession's runner, each line with its run and attempt.\n\n" +
			"A stopped session's Pods are deleted, and their logs with them. What a Pod no longer has is told on standard error.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: sessionKind().completeName(env),
		RunE:              func(command *cobra.Command, args []string) error { return l.run(command.Context(), args[0]) },
	}
	f := command.Flags()
	f.StringVarP(&l.container, "container", "c", v1alpha1.RunnerContainer, "Tell this container's log, such as a sidecar's.")
	f.BoolVarP(&l.follow, "follow", "f", false, "Go on from attempt to attempt until the session has ended or is stopped.")
	f.Int64Var(&l.tail, "tail", allLines, "How many lines of each log there is now are told, from its end; -1: all.")
	f.DurationVar(&l.since, "since", 0, "Tell only what is younger than this, such as 5m, of the logs there are now.")
	f.BoolVar(&l.timestamps, "timestamps", false, "Tell when each line was written.")
	f.BoolVar(&l.allAttempts, "all-attempts", false, "Tell also of earlier attempts and runs.")
	return command
}

func (l *sessionLogs) run(ctx context.Context, name string) error {
	shared := logsCommand{
		environment: l.environment, follow: l.follow, timestamps: l.timestamps, allAttempts: l.allAttempts, tail: l.tail, since: l.since,
	}
	if err := shared.check(); err != nil {
		return err
	}
	cluster, err := l.connect(l.config)
	if err != nil {
		return err
	}
	s := &v1alpha1.AgenticSession{}
	if err := cluster.read(ctx, name, s); err != nil {
		return err
	}
	teller, err := logs.NewSession(ctx, &podsOf{cluster, s.Namespace, selectSessionPods(s)}, s, l.container, shared.options())
	if err != nil {
		return err
	}
	if !l.follow {
		return teller.Tell(ctx, s)
	}
	return followSession(ctx, cluster, s, teller)
}

func followSession(ctx context.Context, cluster *connection, s *v1alpha1.AgenticSession, teller *logs.SessionTeller) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	sessions, err := follow.Start(ctx, cluster.WithWatch, sessionKind().list(), &v1alpha1.AgenticSession{}, only(s)...)
	if err != nil {
		return err
	}
	pods, err := follow.Start(ctx, cluster.WithWatch, &corev1.PodList{}, &corev1.Pod{}, selectSessionPods(s)...)
	if err != nil {
		return err
	}
	trouble := make(chan error)
	go func() { sendForbidden(ctx, trouble, sessions.Trouble, pods.Trouble) }()
	return teller.Follow(ctx, s, rests, logs.SessionWorld{Sessions: sessions.Sights, Pods: pods.Sights, Trouble: trouble})
}

// selectSessionPods selects those made for the AgenticSession.
func selectSessionPods(s *v1alpha1.AgenticSession) []client.ListOption {
	return []client.ListOption{client.InNamespace(s.Namespace), client.MatchingLabels{session.LabelSessionUID: string(s.UID)}}
}
