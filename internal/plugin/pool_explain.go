package plugin

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/yardmaster/yardmaster/internal/plugin/render"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// newExplainPoolCommand is `kubectl yardmaster pool explain`.
func newExplainPoolCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "explain NAME",
		Short: "Explain the number of workers of a WorkerPool",
		Long: "Explain the number of workers of a WorkerPool: the last scaling decision, its inputs, and the result of " +
			"each term of the scaling formula.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: workerPoolKind().completeSingleName(env),
		RunE:              func(command *cobra.Command, args []string) error { return env.explainPool(command.Context(), args[0]) },
	}
}

func (e *environment) explainPool(ctx context.Context, name string) error {
	_, wp, err := workerPoolKind().connectAndGet(ctx, e, name)
	if err != nil {
		return err
	}
	return terminal.WriteLines(e.out, render.PoolExplanation(e.outputStyle(), wp, e.now()))
}
