package plugin

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// poolWatch is `kubectl yardmaster pool watch`.
type poolWatch struct {
	*environment
	selection
}

func newPoolWatch(env *environment) *cobra.Command {
	w := &poolWatch{environment: env}
	command := &cobra.Command{
		Use:   "watch [NAME]",
		Short: "Watch backlogs against workers",
		Long: "Watch the backlog of a WorkerPool against its workers, until interrupted; without a NAME all of the namespace.\n\n" +
			"On a terminal it is drawn in one place; anywhere else there is a line for each change.",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: poolKind().completeName(env),
		RunE:              func(command *cobra.Command, args []string) error { return w.run(command.Context(), args) },
	}
	w.addFlags(command)
	return command
}

func (w *poolWatch) run(ctx context.Context, args []string) error {
	if len(args) > 0 && (w.allNamespaces || w.selector != "") {
		return errors.New("a NAME cannot stand with --all-namespaces or --selector")
	}
	cluster, err := w.connect(w.config)
	if err != nil {
		return err
	}
	if len(args) > 0 {
		wp := &v1alpha1.WorkerPool{}
		if err := cluster.read(ctx, args[0], wp); err != nil {
			return err
		}
		return w.watchPool(ctx, cluster, wp, nil)
	}
	options, err := w.options(cluster)
	if err != nil {
		return err
	}
	// What can never be read is told now, not as trouble that may pass.
	if err := cluster.List(ctx, poolKind().list(), append(options, client.Limit(1))...); err != nil {
		return err
	}
	view := newPoolsView(w.environment)
	view.namespaces = w.allNamespaces
	return w.watchPools(ctx, cluster, view, options...)
}

// watchPool watches one WorkerPool until it is where it was to come to; for ever, if that
// is nowhere.
func (e *environment) watchPool(ctx context.Context, cluster *connection, wp *v1alpha1.WorkerPool, until func(*v1alpha1.WorkerPool) bool) error {
	view := newPoolsView(e)
	view.alone, view.until = wp, until
	return e.watchPools(ctx, cluster, view, only(wp)...)
}

func (e *environment) watchPools(ctx context.Context, cluster *connection, view *poolsView, options ...client.ListOption) error {
	return watch(ctx, e, cluster, view, poolKind().list(), &v1alpha1.WorkerPool{}, options...)
}
