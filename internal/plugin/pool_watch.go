package plugin

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// poolWatchCommand is `kubectl yardmaster pool watch`.
type poolWatchCommand struct {
	*environment
	objectSelection
}

func newPoolWatchCommand(env *environment) *cobra.Command {
	w := &poolWatchCommand{environment: env}
	command := &cobra.Command{
		Use:   "watch [NAME]",
		Short: "Watch the backlog and workers of WorkerPools",
		Long: "Watch the backlog and workers of a WorkerPool until interrupted. Without a NAME, watch all WorkerPools in the namespace.\n\n" +
			watchOutputHelp,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: workerPoolKind().completeSingleName(env),
		RunE:              func(command *cobra.Command, args []string) error { return w.runWatch(command.Context(), args) },
	}
	w.addSelectionFlags(command)
	return command
}

func (w *poolWatchCommand) runWatch(ctx context.Context, args []string) error {
	if len(args) > 0 {
		if w.allNamespaces || w.selector != "" {
			return errors.New("a NAME cannot be combined with --all-namespaces or --selector")
		}
		cluster, wp, err := workerPoolKind().connectAndGet(ctx, w.environment, args[0])
		if err != nil {
			return err
		}
		return w.watchSinglePool(ctx, cluster, wp, nil)
	}
	cluster, options, err := w.connectAndSelect(ctx, w.environment, workerPoolKind().newList())
	if err != nil {
		return err
	}
	view := newPoolListView(w.environment)
	view.showNamespaces = w.allNamespaces
	return watchObjects(ctx, w.environment, cluster, view, workerPoolKind(), options...)
}

// watchSinglePool watches one WorkerPool until the condition is met. With a nil condition it
// watches until interrupted.
func (e *environment) watchSinglePool(ctx context.Context, cluster *clusterConnection, wp *v1alpha1.WorkerPool, until func(*v1alpha1.WorkerPool) bool) error {
	view := newPoolListView(e)
	view.singlePool, view.until = wp, until
	return watchObjects(ctx, e, cluster, view, workerPoolKind(), selectSingleObject(wp)...)
}
