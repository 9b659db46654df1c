package plugin

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// watchCommand is `kubectl yardmaster seq watch`.
type watchCommand struct {
	*environment
	selection

	all, untilFinished bool
}

func newWatch(env *environment) *cobra.Command {
	w := &watchCommand{environment: env}
	command := &cobra.Command{
		Use:   "watch [NAME]",
		Short: "Watch SequentialJobs get on",
		Long: "Watch a SequentialJob step by step until its run has ended; without a NAME all of the namespace, until interrupted.\n\n" +
			"On a terminal it is drawn in one place; anywhere else there is a line for each change.\n" +
			"The exit code is 0 if all completed, 1 if one failed, and 2 if they could not be watched.",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: sequentialKind().completeName(env),
		RunE:              func(command *cobra.Command, args []string) error { return w.run(command.Context(), args) },
	}
	w.addFlags(command)
	command.Flags().BoolVar(&w.all, "all", false, "Watch all of the namespace, as without a NAME.")
	command.Flags().BoolVar(&w.untilFinished, "until-finished", false, "End when all have ended.")
	return command
}

func (w *watchCommand) run(ctx context.Context, args []string) error {
	if len(args) > 0 && (w.all || w.allNamespaces || w.selector != "") {
		return errors.New("a NAME cannot stand with --all, --all-namespaces or --selector")
	}
	cluster, err := w.connect(w.config)
	if err != nil {
		return err
	}
	if len(args) == 0 {
		return w.watchMany(ctx, cluster)
	}
	sj, err := cluster.sequentialJob(ctx, args[0])
	if err != nil {
		return err
	}
	return w.watchOne(ctx, cluster, &stepsView{environment: w.environment, last: sj})
}

func (w *watchCommand) watchMany(ctx context.Context, cluster *connection) error {
	options, err := w.options(cluster)
	if err != nil {
		return err
	}
	// What can never be read is told now, not as trouble that may pass.
	if err := cluster.List(ctx, &v1alpha1.SequentialJobList{}, append(options, client.Limit(1))...); err != nil {
		return err
	}
	view := &rowsView{
		environment: w.environment, namespaces: w.allNamespaces, endless: !w.untilFinished,
		seen: map[client.ObjectKey]*v1alpha1.SequentialJob{},
	}
	return w.watchSequences(ctx, cluster, view, options...)
}

// watchOne watches one SequentialJob from how the view last saw it.
func (e *environment) watchOne(ctx context.Context, cluster *connection, view *stepsView) error {
	return e.watchSequences(ctx, cluster, view, only(view.last)...)
}

// watchSequences shows the SequentialJobs that the options select.
func (e *environment) watchSequences(
	ctx context.Context, cluster *connection, shown view[*v1alpha1.SequentialJob], options ...client.ListOption,
) error {
	return watch(ctx, e, cluster, shown, &v1alpha1.SequentialJobList{}, &v1alpha1.SequentialJob{}, options...)
}
