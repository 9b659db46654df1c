package plugin

import (
	"github.com/spf13/cobra"
)

// newPoolCommand is `kubectl yardmaster pool`, whose commands are about WorkerPools.
func newPoolCommand(env *environment) *cobra.Command {
	command := &cobra.Command{
		Use:     "pool",
		Aliases: []string{"pools", "workerpool", "wp"},
		Short:   "Look at WorkerPools, and drain their workers",
		Args:    cobra.NoArgs,
		RunE:    func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.AddCommand(newListCommand(env, workerPoolKind(), "List WorkerPools, with their workers and what waits for them"),
		newPoolWatchCommand(env), newDrainPoolCommand(env), newExplainPoolCommand(env))
	return command
}
