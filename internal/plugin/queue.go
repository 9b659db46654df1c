package plugin

import (
	"github.com/spf13/cobra"
)

// newQueueCommand is `kubectl yardmaster queue`, whose commands are about Queues.
func newQueueCommand(env *environment) *cobra.Command {
	command := &cobra.Command{
		Use:     "queue",
		Aliases: []string{"queues", "wq"},
		Short:   "Look at Queues, hold them, and see to their dead letters",
		Args:    cobra.NoArgs,
		RunE:    func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.AddCommand(newListCommand(env, queueKind(), "List Queues, with how much waits in each"), newPauseQueueCommand(env), newResumeQueueCommand(env), newDeadLetterCommand(env))
	return command
}
