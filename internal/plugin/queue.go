package plugin

import "github.com/spf13/cobra"

// newQueueCommand is `kubectl yardmaster queue`, the parent of commands for Queues.
func newQueueCommand(env *environment) *cobra.Command {
	return newParentCommand("queue", []string{"queues", "wq"}, "Inspect and pause Queues, and manage their dead letters",
		newListCommand(env, queueKind(), "List Queues with their message counts"),
		newPauseQueueCommand(env), newResumeQueueCommand(env), newDeadLetterCommand(env))
}
