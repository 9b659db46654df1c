package plugin

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// sessionWatch is `kubectl yardmaster session watch`.
type sessionWatch struct {
	*environment
	selection

	untilFinished bool
}

func newSessionWatch(env *environment) *cobra.Command {
	w := &sessionWatch{environment: env}
	command := &cobra.Command{
		Use:   "watch [NAME]",
		Short: "Watch AgenticSessions get on",
		Long: "Watch an AgenticSession attempt by attempt until it has ended or is stopped; without a NAME all of the namespace, until interrupted.\n\n" +
			"On a terminal it is drawn in one place; anywhere else there is a line for each change.\n" +
			"The exit code is 0 if all completed, 1 if one failed or is stopped, and 2 if they could not be watched.",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: sessionKind().completeName(env),
		RunE:              func(command *cobra.Command, args []string) error { return w.run(command.Context(), args) },
	}
	w.addFlags(command)
	command.Flags().BoolVar(&w.untilFinished, "until-finished", false, "End when all have ended or are stopped.")
	return command
}

func (w *sessionWatch) run(ctx context.Context, args []string) error {
	if len(args) > 0 && (w.allNamespaces || w.selector != "") {
		return errors.New("a NAME cannot stand with --all-namespaces or --selector")
	}
	cluster, err := w.connect(w.config)
	if err != nil {
		return err
	}
	if len(args) == 0 {
		return w.watchMany(ctx, cluster)
	}
	s := &v1alpha1.AgenticSession{}
	if err := cluster.read(ctx, args[0], s); err != nil {
		return err
	}
	return w.watchSession(ctx, cluster, &sessionView{environment: w.environment, last: s})
}

func (w *sessionWatch) watchMany(ctx context.Context, cluster *connection) error {
	options, err := w.options(cluster)
	if err != nil {
		return err
	}
	// What can never be read is told now, not as trouble that may pass.
	if err := cluster.List(ctx, sessionKind().list(), append(options, client.Limit(1))...); err != nil {
		return err
	}
	view := &sessionsView{
		environment: w.environment, namespaces: w.allNamespaces, endless: !w.untilFinished,
		seen: map[client.ObjectKey]*v1alpha1.AgenticSession{},
	}
	return watch(ctx, w.environment, cluster, view, sessionKind().list(), &v1alpha1.AgenticSession{}, options...)
}

// watchSession watches one AgenticSession from how the view last saw it.
func (e *environment) watchSession(ctx context.Context, cluster *connection, view *sessionView) error {
	return watch(ctx, e, cluster, view, sessionKind().list(), &v1alpha1.AgenticSession{}, onlySession(view.last)...)
}

// onlySession selects the one AgenticSession.
func onlySession(s *v1alpha1.AgenticSession) []client.ListOption {
	return []client.ListOption{client.InNamespace(s.Namespace), client.MatchingFields{"metadata.name": s.Name}}
}
