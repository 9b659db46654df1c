package plugin

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
		Short: "Watch backlogs against workers",
		Long: "Watch the backlog of a WorkerPool against its workers, until interrupted; without a NAME all of the namespace.\n\n" +
			"On a terminal it is drawn in one place; anywhere else there is a line for each change.",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: workerPoolKind().completeSingleName(env),
		RunE:              func(command *cobra.Command, args []string) error { return w.runWatch(command.Context(), args) },
	}
	w.addSelectionFlags(command)
	return command
}

func (w *poolWatchCommand) runWatch(ctx context.Context, args []string) error {
	if len(args) > 0 && (w.allNamespaces || w.selector != "") {
		return errors.New("a NAME cannot stand with --all-namespaces or --selector")
	}
	cluster, err := w.connect(w.clientConfig)
	if err != nil {
		return err
	}
	if len(args) > 0 {
		wp := &v1alpha1.WorkerPool{}
		if err := cluster.getByName(ctx, args[0], wp); err != nil {
			return err
		}
		return w.watchSinglePool(ctx, cluster, wp, nil)
	}
	options, err := w.listOptions(cluster)
	if err != nil {
		return err
	}
	// What can never be read is told now, not as trouble that may pass.
	if err := cluster.List(ctx, workerPoolKind().newList(), append(options, client.Limit(1))...); err != nil {
		return err
	}
	view := newPoolListView(w.environment)
	view.showNamespaces = w.allNamespaces
	return w.watchPools(ctx, cluster, view, options...)
}

// watchSinglePool watches one WorkerPool until it is where it was to come to; for ever, if that
// is nowhere.
func (e *environment) watchSinglePool(ctx context.Context, cluster *clusterConnection, wp *v1alpha1.WorkerPool, until func(*v1alpha1.WorkerPool) bool) error {
	view := newPoolListView(e)
	view.singlePool, view.until = wp, until
	return e.watchPools(ctx, cluster, view, selectSingleObject(wp)...)
}

func (e *environment) watchPools(ctx context.Context, cluster *clusterConnection, view *poolListView, options ...client.ListOption) error {
	return watchObjects(ctx, e, cluster, view, workerPoolKind().newList(), &v1alpha1.WorkerPool{}, options...)
}
