package plugin

import "github.com/spf13/cobra"

// newPoolCommand is `kubectl yardmaster pool`, the parent of commands for WorkerPools.
func newPoolCommand(env *environment) *cobra.Command {
	return newParentCommand("pool", []string{"pools", "workerpool", "wp"}, "Inspect WorkerPools and drain their workers",
		newListCommand(env, workerPoolKind(), "List WorkerPools with their workers and backlog"),
		newPoolWatchCommand(env), newDrainPoolCommand(env), newExplainPoolCommand(env))
}
