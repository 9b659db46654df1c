package plugin

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// newPoolCommand is `kubectl yardmaster pool`, the parent of commands for WorkerPools.
func newPoolCommand(env *environment) *cobra.Command {
	return newParentCommand("pool", []string{"pools", "workerpool", "wp"}, "Inspect WorkerPools and drain their workers",
		newListCommand(env, workerPoolKind, "List WorkerPools with their workers and backlog"),
		newPoolWatchCommand(env), newDrainPoolCommand(env),
		workerPoolKind.newObjectCommand(env, "explain", "Explain the number of workers of a WorkerPool",
			"Explain the number of workers of a WorkerPool: the last scaling decision, its inputs, and the result of "+
				"each term of the scaling formula.",
			func(_ context.Context, _ *clusterConnection, wp *v1alpha1.WorkerPool) error {
				return terminal.WriteLines(env.out, render.PoolExplanation(env.outputStyle(), wp, env.now()))
			}))
}
