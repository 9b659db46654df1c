package plugin

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// newExplainPoolCommand is `kubectl yardmaster pool explain`.
func newExplainPoolCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "explain NAME",
		Short: "Tell why a WorkerPool has as many workers as it has",
		Long: "Tell why a WorkerPool has as many workers as it has: the last decision, the figures it was made from, " +
			"and what each part of the formula makes of them.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: workerPoolKind().completeSingleName(env),
		RunE:              func(command *cobra.Command, args []string) error { return env.explainPool(command.Context(), args[0]) },
	}
}

func (e *environment) explainPool(ctx context.Context, name string) error {
	cluster, err := e.connect(e.clientConfig)
	if err != nil {
		return err
	}
	wp := &v1alpha1.WorkerPool{}
	if err := cluster.getByName(ctx, name, wp); err != nil {
		return err
	}
	return terminal.WriteLines(e.out, render.PoolExplanation(e.outputStyle(), wp, e.now()))
}
